//! When a failed model call is tried again, and how long to wait (agents reference, section 4).

use crate::model::{ErrorKind, ModelError};
use rand::RngExt;
use std::time::Duration;

/// The longest wait that a provider can ask for with `Retry-After`.
const LONGEST_ASKED: Duration = Duration::from_secs(3600);
/// The longest wait of our own.
const LONGEST_OWN: Duration = Duration::from_secs(60);

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Try again after this wait.
    After(Duration),
    /// Replace the images by text, then try again.
    WithoutImages,
    /// No more.
    GiveUp,
}

/// Counts the tries of one turn.
#[derive(Debug)]
pub struct Patience {
    max_tries: u32,
    failures: u32,
    images_dropped: bool,
}

impl Patience {
    /// At most `max_tries` tries in a row, at least one.
    pub fn new(max_tries: u32) -> Self {
        Self { max_tries: max_tries.max(1), failures: 0, images_dropped: false }
    }

    /// A call went well.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// A call failed.
    pub fn after(&mut self, error: &ModelError) -> Retry {
        self.failures += 1;
        if error.kind == ErrorKind::BadImage && !self.images_dropped {
            self.images_dropped = true;
            return Retry::WithoutImages;
        }
        let first_wait = match error.kind {
            ErrorKind::Throttle | ErrorKind::Server => Duration::from_secs(2),
            ErrorKind::Network | ErrorKind::EmptyResponse | ErrorKind::Corrupted => Duration::from_secs(1),
            ErrorKind::Account | ErrorKind::ContextOverflow | ErrorKind::BadImage | ErrorKind::Fatal => {
                return Retry::GiveUp;
            }
        };
        if self.failures >= self.max_tries {
            return Retry::GiveUp;
        }
        if let Some(asked) = error.retry_after {
            return Retry::After(asked.min(LONGEST_ASKED));
        }
        let wait = first_wait * 2u32.saturating_pow((self.failures - 1).min(16));
        let jitter = Duration::from_millis(rand::rng().random_range(0..1000));
        Retry::After((wait + jitter).min(LONGEST_OWN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: ErrorKind, retry_after: Option<u64>) -> ModelError {
        ModelError {
            kind,
            status: None,
            message: "x".into(),
            retry_after: retry_after.map(Duration::from_secs),
            fault: None,
        }
    }

    #[test]
    fn account_errors_are_never_tried_again() {
        assert_eq!(Patience::new(5).after(&error(ErrorKind::Account, Some(1))), Retry::GiveUp);
    }

    #[test]
    fn the_fifth_failure_in_a_row_is_the_last() {
        let mut patience = Patience::new(5);
        for n in 0..4 {
            let Retry::After(wait) = patience.after(&error(ErrorKind::Throttle, None)) else { panic!() };
            let least = Duration::from_secs(2 << n);
            assert!(wait >= least && wait < least + Duration::from_secs(1), "{wait:?}");
        }
        assert_eq!(patience.after(&error(ErrorKind::Throttle, None)), Retry::GiveUp);
    }

    #[test]
    fn a_good_call_starts_the_count_anew() {
        let mut patience = Patience::new(2);
        assert!(matches!(patience.after(&error(ErrorKind::Network, None)), Retry::After(_)));
        patience.reset();
        assert!(matches!(patience.after(&error(ErrorKind::Network, None)), Retry::After(_)));
    }

    #[test]
    fn a_wait_that_the_provider_asks_for_is_honoured_up_to_an_hour() {
        let mut patience = Patience::new(5);
        assert_eq!(
            patience.after(&error(ErrorKind::Throttle, Some(7))),
            Retry::After(Duration::from_secs(7))
        );
        assert_eq!(patience.after(&error(ErrorKind::Server, Some(86_400))), Retry::After(LONGEST_ASKED));
    }

    #[test]
    fn a_rejected_image_is_dropped_once() {
        let mut patience = Patience::new(5);
        assert_eq!(patience.after(&error(ErrorKind::BadImage, None)), Retry::WithoutImages);
        assert_eq!(patience.after(&error(ErrorKind::BadImage, None)), Retry::GiveUp);
    }
}
