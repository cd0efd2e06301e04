//! The network of sandboxed commands: the addresses at which clouds hand out credentials are out of reach, or it is said
//! that they are not.

use super::{Mode, Stack};
use halo_tests::server::Launch;

/// Says at once how a connection to the host ends, and how long that took.
fn connect(host: &str, port: u16) -> String {
    format!(
        "python3 -c 'import socket, errno, time\n\
         t = time.time()\n\
         s = socket.socket(socket.AF_INET6 if \":\" in \"{host}\" else socket.AF_INET)\n\
         s.settimeout(3)\n\
         try: s.connect((\"{host}\", {port})); r = \"connected\"\n\
         except OSError as e: r = errno.errorcode.get(e.errno, str(e))\n\
         print(r, \"at once\" if time.time() - t < 1 else \"late\")'"
    )
}

/// What doctor says of the sandbox and its network.
async fn doctor(stack: &Stack) -> String {
    stack.server.place().run(["doctor"]).await.stdout
}

#[tokio::test]
async fn the_credentials_addresses_are_out_of_reach_or_doctor_says_that_they_are_not() {
    let Some(stack) = Stack::start(Mode::Workspace).await else { return };
    let said = doctor(&stack).await;
    if said.contains("in reach") {
        eprintln!("no network namespace here: {said}");
        return;
    }
    for address in ["169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "fd00:ec2::254"] {
        let result = stack.run(&connect(address, 80)).await;
        let refused = ["EHOSTUNREACH at once", "ENETUNREACH at once"];
        assert!(refused.iter().any(|words| result.contains(words)), "{address}: {result}");
    }
    let routes = stack.run("ip route get 192.0.2.1; ip route; cat /etc/resolv.conf").await;
    assert!(routes.contains("192.0.2.1 via 10.0.2.2 dev tap0"), "{routes}");
    assert!(routes.contains("nameserver 10.0.2.3"), "{routes}");
    assert!(
        stack.run("ip route del unreachable 169.254.0.0/16; ip route").await.contains("unreachable 169.254")
    );
}

#[tokio::test]
async fn a_server_on_the_machine_itself_is_reached_with_its_network_alone() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for (setting, reached) in [("network: off", false), ("network: host", true)] {
        let stack = Stack::start_with(Mode::Workspace, setting, Launch::default(), |_| ()).await;
        let Some(stack) = stack else { return };
        let result = stack.run(&connect("127.0.0.1", port)).await;
        assert_eq!(result.contains("connected at once"), reached, "{setting}: {result}");
        assert_eq!(doctor(&stack).await.contains("in reach"), reached, "{setting}");
        if !reached {
            assert!(stack.run(&connect("192.0.2.1", 80)).await.contains("ENETUNREACH at once"));
        }
    }
}

#[tokio::test]
async fn abstract_sockets_of_the_machine_are_out_of_reach_where_the_kernel_can() {
    use std::os::linux::net::SocketAddrExt;
    let name = format!("halo-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let command = format!(
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{name}\"); print(\"connected\")'"
    );
    for setting in ["network: on", "network: off", "network: host"] {
        let stack = Stack::start_with(Mode::Workspace, setting, Launch::default(), |_| ()).await;
        let Some(stack) = stack else { return };
        let result = stack.run(&command).await;
        assert!(!result.contains("connected"), "{setting}: {result}");
    }
}

#[tokio::test]
async fn landlock_refuses_what_it_cannot_keep() {
    let launch = Launch::default();
    let Some(stack) = Stack::start_with(Mode::Landlock, "network: off", launch, |_| ()).await else { return };
    let result = stack.run("echo ran").await;
    assert!(result.contains("general.sandbox.network is off"), "{result}");
    assert!(!result.contains("ran\n"), "{result}");
}
