//! Points in time as the pure layers see them: a number that the caller hands in.

use core::ops::{Add, Sub};
use core::time::Duration;

/// Nanoseconds of a monotonic clock since an origin that the shell chose. The pure layers never read a clock:
/// they are told the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The origin.
    pub const ZERO: Nanos = Nanos(0);
    /// A point that is never reached.
    pub const NEVER: Nanos = Nanos(u64::MAX);

    /// How long after `earlier` this is; zero if it is before it.
    #[must_use]
    pub const fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Nanos {
    type Output = Nanos;
    /// Saturates at [`Nanos::NEVER`].
    fn add(self, duration: Duration) -> Nanos {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Nanos(self.0.saturating_add(nanos))
    }
}

impl Sub<Duration> for Nanos {
    type Output = Nanos;
    /// Saturates at [`Nanos::ZERO`].
    fn sub(self, duration: Duration) -> Nanos {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Nanos(self.0.saturating_sub(nanos))
    }
}
