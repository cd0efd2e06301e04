//! System calls that a sandboxed command is refused, as a seccomp filter. Namespaces and Landlock judge files and
//! processes; this closes what goes past both: new user namespaces (more of the kernel within reach), setuid bits on
//! files that are left behind, kernel keyrings, odd socket families, and under Landlock what it does not judge.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    sock_filter,
};
use std::collections::BTreeMap;

/// What else holds the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Namespaces: files, processes, IPC and sockets of others are out of sight.
    Namespaces,
    /// Landlock: it does not judge UNIX sockets with a path, modes, owners, times, attributes, and IPC.
    Landlock,
}

/// Answered as if the kernel did not know them, because their flags are behind a pointer: programs then take the
/// older call, which is judged. The numbers are the same on all machines.
const UNKNOWN: [u32; 6] = [
    435, // clone3
    437, // openat2
    425, 426, 427, // io_uring_*: does file and socket work past this filter
    452, // fchmodat2
];
/// Numbers from here on are calls of the x32 ABI, which the rest of the filter does not know.
const X32: u32 = 0x4000_0000;

const SUID: u64 = 0o4000;
const SGID: u64 = 0o2000;
const NEW_USER: u64 = libc::CLONE_NEWUSER as u64;
const CREATE: u64 = libc::O_CREAT as u64;
/// `O_TMPFILE` without `O_DIRECTORY`, which is part of it.
const TEMPORARY: u64 = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64;
const SET_FLAGS: [u64; 2] = [0x4008_6602, 0x401c_5820];

/// Classic BPF: load the number; jump when equal; jump when greater or equal; return.
const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
const RETURN_ERRNO: u32 = 0x0005_0000;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The filter. It answers `EPERM`, or `ENOSYS` for calls that programs have another way for. Programs of another
/// architecture (32 bits) are killed. Fails only on machines that the crate does not know.
pub fn filter(beside: Beside) -> Result<BpfProgram, String> {
    let mut rules = Rules::new();
    build(&mut rules, beside).map_err(|error| error.to_string())?;
    let arch = std::env::consts::ARCH;
    let arch = arch.try_into().map_err(|error: seccompiler::BackendError| error.to_string())?;
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch);
    let main: BpfProgram =
        filter.and_then(TryInto::try_into).map_err(|error: seccompiler::BackendError| error.to_string())?;
    let mut program = vec![sock_filter { code: LOAD, jt: 0, jf: 0, k: 0 }];
    let unknown = UNKNOWN.map(|number| (EQUAL, number));
    for (code, k) in unknown.into_iter().chain([(AT_LEAST, X32)]) {
        program.push(sock_filter { code, jt: 0, jf: 1, k });
        program.push(sock_filter { code: RETURN, jt: 0, jf: 0, k: RETURN_ERRNO | libc::ENOSYS as u32 });
    }
    program.extend(main);
    Ok(program)
}

/// The filter as `bwrap --seccomp` reads it.
pub fn bytes(program: &BpfProgram) -> Vec<u8> {
    let one = |line: &sock_filter| {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&line.code.to_ne_bytes());
        bytes[2] = line.jt;
        bytes[3] = line.jf;
        bytes[4..].copy_from_slice(&line.k.to_ne_bytes());
        bytes
    };
    program.iter().flat_map(one).collect()
}

fn build(rules: &mut Rules, beside: Beside) -> Result<(), seccompiler::BackendError> {
    let mut refuse = |call: i64, conditions: &[(u8, SeccompCmpOp, u64)]| {
        let entry = rules.entry(call).or_default();
        if conditions.is_empty() {
            // Refused whatever its arguments, so conditions of before do not count.
            entry.clear();
        } else {
            let conditions = conditions.iter().map(|(argument, operator, value)| {
                SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, operator.clone(), *value)
            });
            entry.push(SeccompRule::new(conditions.collect::<Result<_, _>>()?)?);
        }
        Ok::<_, seccompiler::BackendError>(())
    };
    for call in [libc::SYS_unshare, libc::SYS_clone] {
        refuse(call, &[(0, has(NEW_USER), NEW_USER)])?;
    }
    for bit in [SUID, SGID] {
        refuse(libc::SYS_fchmod, &[(1, has(bit), bit)])?;
        refuse(libc::SYS_fchmodat, &[(2, has(bit), bit)])?;
        refuse(libc::SYS_mknodat, &[(2, has(bit), bit)])?;
        for makes in [CREATE, TEMPORARY] {
            refuse(libc::SYS_openat, &[(2, has(makes), makes), (3, has(bit), bit)])?;
        }
        #[cfg(target_arch = "x86_64")]
        {
            refuse(libc::SYS_chmod, &[(1, has(bit), bit)])?;
            refuse(libc::SYS_mknod, &[(1, has(bit), bit)])?;
            refuse(libc::SYS_creat, &[(1, has(bit), bit)])?;
            for makes in [CREATE, TEMPORARY] {
                refuse(libc::SYS_open, &[(1, has(makes), makes), (2, has(bit), bit)])?;
            }
        }
    }
    for call in [
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
    ] {
        refuse(call, &[])?;
    }
    // IP and netlink; sockets with a path only where the folders around are the command's own. Others, such as
    // AF_VSOCK to the host of a virtual machine, know no network namespace.
    let mut families = vec![libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    if beside == Beside::Namespaces {
        families.push(libc::AF_UNIX);
    }
    let other: Vec<_> = families.iter().map(|family| (0, SeccompCmpOp::Ne, *family as u64)).collect();
    refuse(libc::SYS_socket, &other)?;
    if beside == Beside::Landlock {
        past_landlock(&mut refuse)?;
    }
    Ok(())
}

fn has(bits: u64) -> SeccompCmpOp {
    SeccompCmpOp::MaskedEq(bits)
}

/// What Landlock does not judge: changes that are no writes, IPC, and the limits and order of other processes.
fn past_landlock<E>(
    refuse: &mut impl FnMut(i64, &[(u8, SeccompCmpOp, u64)]) -> Result<(), E>,
) -> Result<(), E> {
    for call in [
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_utimensat,
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
        463, // setxattrat
        466, // removexattrat
        469, // file_setattr
        libc::SYS_shmget,
        libc::SYS_shmat,
        libc::SYS_shmctl,
        libc::SYS_semget,
        libc::SYS_semctl,
        libc::SYS_semtimedop,
        libc::SYS_semop,
        libc::SYS_msgget,
        libc::SYS_msgsnd,
        libc::SYS_msgrcv,
        libc::SYS_msgctl,
        libc::SYS_mq_open,
        libc::SYS_mq_unlink,
    ] {
        refuse(call, &[])?;
    }
    #[cfg(target_arch = "x86_64")]
    for call in [
        libc::SYS_chmod,
        libc::SYS_chown,
        libc::SYS_lchown,
        libc::SYS_utime,
        libc::SYS_utimes,
        libc::SYS_futimesat,
    ] {
        refuse(call, &[])?;
    }
    for request in SET_FLAGS {
        refuse(libc::SYS_ioctl, &[(1, SeccompCmpOp::Eq, request)])?;
    }
    // For itself (0) a process may set these.
    for (call, argument) in [
        (libc::SYS_prlimit64, 0),
        (libc::SYS_sched_setscheduler, 0),
        (libc::SYS_sched_setparam, 0),
        (libc::SYS_sched_setattr, 0),
        (libc::SYS_sched_setaffinity, 0),
        (libc::SYS_migrate_pages, 0),
        (libc::SYS_move_pages, 0),
        (libc::SYS_setpriority, 1),
        (libc::SYS_ioprio_set, 1),
    ] {
        refuse(call, &[(argument, SeccompCmpOp::Ne, 0)])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_filters_fit_the_kernel_and_are_eight_bytes_a_line() {
        for beside in [Beside::Namespaces, Beside::Landlock] {
            let program = filter(beside).unwrap();
            assert!(program.len() < 4096, "{}", program.len());
            assert_eq!(bytes(&program).len(), program.len() * 8);
        }
    }

    #[test]
    fn landlock_refuses_more_than_namespaces() {
        assert!(filter(Beside::Landlock).unwrap().len() > filter(Beside::Namespaces).unwrap().len());
    }
}
