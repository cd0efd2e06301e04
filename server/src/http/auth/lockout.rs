//! The lockout: five failures within a quarter of an hour lock an address out for as long. In memory, per bucket
//! and address, bounded. It counts; who is asking and what failed is its callers' business.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many failures lock.
const STRIKES: usize = 5;
/// Failures older than this do not count: milliseconds.
const WINDOW_MS: i64 = 15 * 60 * 1000;
/// How long a lock holds: milliseconds.
const LOCK_MS: i64 = 15 * 60 * 1000;
/// How many addresses are remembered: about 2 MiB. The longest quiet ones are forgotten first.
const MAX_ENTRIES: usize = 16_384;

/// What is being guessed. Buckets do not know of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bucket {
    /// Tokens of channel accounts.
    Token,
    /// The admin password, by someone who is not logged in.
    Login,
    /// The admin password, by someone who is and wants to change it.
    PasswordChange,
}

/// The address is locked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locked {
    /// Seconds, at least 1.
    pub retry_after: u64,
}

/// Counts failures. Times are milliseconds of the caller's clock.
pub struct Lockout {
    entries: Mutex<HashMap<(Bucket, IpAddr), Entry>>,
    max_entries: usize,
}

#[derive(Default)]
struct Entry {
    /// Failures within the window, oldest first; never more than [`STRIKES`].
    strikes: Vec<i64>,
    locked_until: i64,
}

impl Entry {
    fn locked(&self, now: i64) -> Result<(), Locked> {
        let left = self.locked_until.saturating_sub(now).min(LOCK_MS);
        if left <= 0 {
            return Ok(());
        }
        Err(Locked { retry_after: left.unsigned_abs().div_ceil(1000) })
    }

    fn forget_old(&mut self, now: i64) {
        self.strikes.retain(|at| now.saturating_sub(*at) < WINDOW_MS);
    }

    fn is_over(&self, now: i64) -> bool {
        self.locked(now).is_ok() && self.strikes.iter().all(|at| now.saturating_sub(*at) >= WINDOW_MS)
    }

    fn last_touched(&self) -> i64 {
        self.strikes.last().copied().unwrap_or(0).max(self.locked_until - LOCK_MS)
    }
}

impl Default for Lockout {
    fn default() -> Self {
        Self { entries: Mutex::default(), max_entries: MAX_ENTRIES }
    }
}

impl Lockout {
    /// Whether the address may try at all.
    pub fn check(&self, bucket: Bucket, address: IpAddr, now: i64) -> Result<(), Locked> {
        self.entries().get(&(bucket, address)).map_or(Ok(()), |entry| entry.locked(now))
    }

    /// Counts a failure. `Err` when the address was locked out while this try was under way; the failure that
    /// fills the count is still answered as a failure.
    pub fn strike(&self, bucket: Bucket, address: IpAddr, now: i64) -> Result<(), Locked> {
        let mut entries = self.entries();
        if entries.len() >= self.max_entries && !entries.contains_key(&(bucket, address)) {
            make_room(&mut entries, self.max_entries, now);
        }
        let entry = entries.entry((bucket, address)).or_default();
        entry.locked(now)?;
        entry.forget_old(now);
        entry.strikes.push(now);
        if entry.strikes.len() >= STRIKES {
            entry.strikes.clear();
            entry.locked_until = now.saturating_add(LOCK_MS);
        }
        Ok(())
    }

    /// A success: the address starts afresh. `Err` when it was locked out while this try was under way.
    pub fn clear(&self, bucket: Bucket, address: IpAddr, now: i64) -> Result<(), Locked> {
        let mut entries = self.entries();
        if let Some(entry) = entries.get(&(bucket, address)) {
            entry.locked(now)?;
            entries.remove(&(bucket, address));
        }
        Ok(())
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<(Bucket, IpAddr), Entry>> {
        // Nothing below can panic half-way through a change.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops what is over; if that is not enough, the quarter that has been quiet longest, so that a flood of
/// addresses costs a sort only once in a while.
fn make_room(entries: &mut HashMap<(Bucket, IpAddr), Entry>, max: usize, now: i64) {
    entries.retain(|_, entry| !entry.is_over(now));
    if entries.len() < max {
        return;
    }
    let mut touched: Vec<i64> = entries.values().map(Entry::last_touched).collect();
    let (_, limit, _) = touched.select_nth_unstable(max / 4);
    let limit = *limit;
    let mut to_drop = (max / 4).max(1);
    entries.retain(|_, entry| {
        let drop = to_drop > 0 && entry.last_touched() <= limit;
        to_drop -= usize::from(drop);
        !drop
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const MINUTE: i64 = 60_000;

    fn ip(last: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + last))
    }

    fn strikes(lockout: &Lockout, count: usize, now: i64) {
        for _ in 0..count {
            lockout.strike(Bucket::Token, ip(1), now).unwrap();
        }
    }

    #[test]
    fn the_fifth_failure_locks_for_fifteen_minutes() {
        let lockout = Lockout::default();
        strikes(&lockout, 4, 0);
        assert_eq!(lockout.check(Bucket::Token, ip(1), 0), Ok(()));
        strikes(&lockout, 1, 1_000);
        assert_eq!(lockout.check(Bucket::Token, ip(1), 1_000), Err(Locked { retry_after: 900 }));
        assert_eq!(
            lockout.check(Bucket::Token, ip(1), 1_000 + 15 * MINUTE - 1),
            Err(Locked { retry_after: 1 })
        );
        assert_eq!(lockout.check(Bucket::Token, ip(1), 1_000 + 15 * MINUTE), Ok(()));
        strikes(&lockout, 4, 1_000 + 15 * MINUTE);
        assert_eq!(
            lockout.check(Bucket::Token, ip(1), 1_000 + 15 * MINUTE),
            Ok(()),
            "the count starts afresh"
        );
    }

    #[test]
    fn failures_older_than_the_window_do_not_count() {
        let lockout = Lockout::default();
        strikes(&lockout, 4, 0);
        strikes(&lockout, 1, 15 * MINUTE);
        assert_eq!(lockout.check(Bucket::Token, ip(1), 15 * MINUTE), Ok(()));
    }

    #[test]
    fn a_success_clears_but_never_unlocks() {
        let lockout = Lockout::default();
        strikes(&lockout, 4, 0);
        lockout.clear(Bucket::Token, ip(1), 0).unwrap();
        strikes(&lockout, 4, 0);
        assert_eq!(lockout.check(Bucket::Token, ip(1), 0), Ok(()));
        strikes(&lockout, 1, 0);
        assert!(lockout.clear(Bucket::Token, ip(1), 1).is_err());
        assert!(lockout.strike(Bucket::Token, ip(1), 1).is_err());
    }

    #[test]
    fn buckets_and_addresses_do_not_know_of_each_other() {
        let lockout = Lockout::default();
        strikes(&lockout, 5, 0);
        assert_eq!(lockout.check(Bucket::Login, ip(1), 0), Ok(()));
        assert_eq!(lockout.check(Bucket::Token, ip(2), 0), Ok(()));
    }

    #[test]
    fn a_clock_that_steps_back_never_locks_longer_than_a_lock() {
        let lockout = Lockout::default();
        strikes(&lockout, 5, 100 * MINUTE);
        assert_eq!(lockout.check(Bucket::Token, ip(1), 0), Err(Locked { retry_after: 900 }));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_the_newest() {
        let lockout = Lockout { max_entries: 64, ..Lockout::default() };
        for n in 0..1_000 {
            lockout.strike(Bucket::Token, ip(n), i64::from(n)).unwrap();
            assert!(lockout.entries().len() <= 64);
        }
        assert!(lockout.entries().contains_key(&(Bucket::Token, ip(999))));
        assert!(lockout.entries().len() >= 32, "it forgets a quarter, not all");
    }
}
