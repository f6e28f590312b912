//! What each value may be, and what values must hold together.

use core::fmt::Display;
use core::net::SocketAddr;
use core::time::Duration;

use super::keys::Config;
use super::setting::{Cores, Spin, Store};
use super::units::{format_bytes, format_duration};
use crate::base::limits::{NAME_BYTES_MAX, NUMBER_OF_SHARDS_MAX};

/// A resend after a crash needs the lease to lapse, the shard to be claimed and its entity to start.
const MARGIN_OVER_LEASE: Duration = Duration::from_secs(3);
/// Largest length of anything that bounds a buffer or a queue of one core.
const COUNT_MAX: u32 = 1 << 20;
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Problems found so far: key, and the sentence that follows it.
struct Problems(Vec<(&'static str, String)>);

impl Config {
    /// Everything that is wrong with the values: the key, and what to do about it as the rest of the sentence that the
    /// key begins. Empty means usable. `cores_available` is compared with `pod.cores` of a pinned pod.
    #[must_use]
    pub fn problems(&self, cores_available: Option<usize>) -> Vec<(&'static str, String)> {
        let mut problems = Problems(Vec::new());
        self.pod_problems(cores_available, &mut problems);
        self.capacity_problems(&mut problems);
        self.time_problems(&mut problems);
        self.control_problems(&mut problems);
        // The parser of the library panics at some characters that no target or level has.
        if !self.log.level.is_ascii() {
            problems.add(
                "log.level",
                "has letters that no level or target has; write a level such as \"info\" or \"debug\"".to_owned(),
            );
        } else if let Err(error) = tracing_subscriber::EnvFilter::try_new(&self.log.level) {
            problems
                .add("log.level", format!("is not understood ({error}); write a level such as \"info\" or \"debug\""));
        }
        problems.0
    }

    fn pod_problems(&self, cores_available: Option<usize>, problems: &mut Problems) {
        let pod = &self.pod;
        problems.name("pod.cluster_name", &pod.cluster_name);
        problems.name("pod.role", &pod.role);
        let numbers = pod.version.split('.');
        if pod.version.len() > NAME_BYTES_MAX
            || numbers.clone().count() > 4
            || numbers.clone().any(|n| n.parse::<u32>().is_err())
        {
            problems.add(
                "pod.version",
                format!("is {:?}; write one to four numbers with dots, such as \"1.2.0\"", pod.version),
            );
        }
        let reachable = |address: SocketAddr| !address.ip().is_unspecified() && address.port() != 0;
        match pod.advertise {
            Some(address) if !reachable(address) => problems.add(
                "pod.advertise",
                format!("is {address}, which nobody can connect to; write the address and port by which others reach this pod"),
            ),
            None if pod.listen.ip().is_unspecified() => problems.add(
                "pod.listen",
                format!("is {}, which others cannot connect to; set `pod.advertise` to the address by which they reach this pod", pod.listen),
            ),
            _ => {}
        }
        if let (Cores::Count(count), Some(available), true) = (pod.cores, cores_available, pod.pin)
            && usize::from(count) > available
        {
            problems.add(
                "pod.cores",
                format!("is {count} and this process may run on {available}; write {available} or less or \"all\", or set `pod.pin` to false"),
            );
        }
    }

    fn capacity_problems(&self, problems: &mut Problems) {
        let (links, event_loop) = (&self.links, &self.event_loop);
        problems.range("sharding.number_of_shards", self.sharding.number_of_shards, 1, NUMBER_OF_SHARDS_MAX);
        problems.range("sharding.hash_seed", self.sharding.hash_seed, 0, i64::MAX as u64);
        problems.range("entities.mailbox_capacity", self.entities.mailbox_capacity, 1, COUNT_MAX);
        problems.range("links.in_flight_max", links.in_flight_max, 1, COUNT_MAX);
        // A hello and every control frame fit in 4 KiB; above 64 MiB a few peers could exhaust a pod.
        problems.bytes("links.frame_bytes_max", links.frame_bytes_max, 4 << 10, 64 << 20);
        problems.bytes("links.send_bytes_max", links.send_bytes_max, 64 << 10, 1 << 30);
        if links.send_bytes_max < links.frame_bytes_max {
            let least = format_bytes(links.frame_bytes_max);
            problems.add(
                "links.send_bytes_max",
                format!("is less than `links.frame_bytes_max`, so a largest frame could never be sent; write {least} or more"),
            );
        }
        // The kernel takes rings of up to 32768 buffers.
        problems.range("loop.receive_buffers", event_loop.receive_buffers, 2, 1 << 15);
        problems.bytes("loop.receive_buffer_bytes", event_loop.receive_buffer_bytes, 4 << 10, 1 << 20);
        if !event_loop.receive_buffers.is_power_of_two() {
            let near = event_loop.receive_buffers.checked_next_power_of_two().unwrap_or(1 << 15);
            problems.add("loop.receive_buffers", format!("must be a power of two; write {near}"));
        }
        if !event_loop.receive_buffer_bytes.is_power_of_two() {
            let near = format_bytes(event_loop.receive_buffer_bytes.checked_next_power_of_two().unwrap_or(1 << 20));
            problems.add("loop.receive_buffer_bytes", format!("must be a power of two; write \"{near}\""));
        }
    }

    fn time_problems(&self, problems: &mut Problems) {
        let millisecond = Duration::from_millis(1);
        let (entities, event_loop) = (&self.entities, &self.event_loop);
        problems.duration("pod.drain_timeout", self.pod.drain_timeout, millisecond, HOUR);
        problems.duration("entities.max_idle", entities.max_idle, millisecond, 365 * DAY);
        problems.duration("entities.termination_timeout", entities.termination_timeout, millisecond, HOUR);
        problems.duration("entities.send_timeout", entities.send_timeout, millisecond, DAY);
        problems.duration("links.hello_timeout", self.links.hello_timeout, 10 * millisecond, Duration::from_secs(60));
        if let Spin::For(spin) = event_loop.spin {
            problems.duration("loop.spin", spin, Duration::ZERO, Duration::from_secs(1));
        }
        problems.duration("loop.slice", event_loop.slice, Duration::from_micros(1), 10 * millisecond);
        problems.duration("loop.stall", event_loop.stall, millisecond, Duration::from_secs(60));
        if entities.termination_timeout > self.pod.drain_timeout {
            problems.add(
                "pod.drain_timeout",
                format!(
                    "is shorter than `entities.termination_timeout`, so a stop would cut entities off; write {:?} or more",
                    format_duration(entities.termination_timeout)
                ),
            );
        }
        if event_loop.stall <= event_loop.slice {
            problems.add(
                "loop.stall",
                "must be longer than `loop.slice`, or every turn would be logged; raise it".to_owned(),
            );
        }
    }

    fn control_problems(&self, problems: &mut Problems) {
        let control = &self.control;
        // etcd grants no lease below two seconds; a minute without an owner is an outage.
        problems.duration("control.lease_ttl", control.lease_ttl, Duration::from_secs(2), Duration::from_secs(60));
        problems.duration("control.settle", control.settle, Duration::ZERO, Duration::from_secs(60));
        problems.duration("control.rebalance_interval", control.rebalance_interval, Duration::from_millis(100), HOUR);
        problems.range("control.rebalance_rate_per_mille", control.rebalance_rate_per_mille, 1, 1000);
        if control.store == Store::Embedded {
            return;
        }
        if control.store == Store::Etcd {
            problems.add(
                "control.store",
                "is \"etcd\", which this build does not have; write \"embedded\" or \"served\"".to_owned(),
            );
        } else if control.address.ip().is_unspecified() || control.address.port() == 0 {
            let address = control.address;
            problems.add(
                "control.address",
                format!("is {address}, which nobody can connect to; write that of the manager"),
            );
        }
        let least = control.lease_ttl + MARGIN_OVER_LEASE;
        if self.entities.send_timeout < least {
            problems.add(
                "entities.send_timeout",
                format!(
                    "is shorter than `control.lease_ttl` + 3s, so no message would survive a crash; write {:?} or more",
                    format_duration(least)
                ),
            );
        }
    }
}

impl Problems {
    fn add(&mut self, key: &'static str, message: String) {
        self.0.push((key, message));
    }

    fn range<N: PartialOrd + Display>(&mut self, key: &'static str, value: N, least: N, most: N) {
        if value < least || value > most {
            self.add(key, format!("is {value}; write {least} to {most}"));
        }
    }

    fn bytes(&mut self, key: &'static str, value: usize, least: usize, most: usize) {
        if value < least || value > most {
            let [value, least, most] = [value, least, most].map(format_bytes);
            self.add(key, format!("is {value}; write \"{least}\" to \"{most}\""));
        }
    }

    fn duration(&mut self, key: &'static str, value: Duration, least: Duration, most: Duration) {
        if value < least || value > most {
            let [value, least, most] = [value, least, most].map(format_duration);
            self.add(key, format!("is {value}; write \"{least}\" to \"{most}\""));
        }
    }

    fn name(&mut self, key: &'static str, name: &str) {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(allowed) {
            self.add(key, format!("is {name:?}; write 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(config: &Config) -> Vec<&'static str> {
        config.problems(Some(2)).into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn the_defaults_are_usable() {
        assert_eq!(Config::default().problems(Some(1)), []);
        assert_eq!(Config::dev().problems(Some(1)), []);
    }

    #[test]
    fn a_short_send_timeout_is_refused_where_pods_can_crash_apart() {
        let mut config = Config::default();
        config.entities.send_timeout = Duration::from_millis(7999);
        assert_eq!(keys(&config), [] as [&str; 0]);
        config.control.store = Store::Etcd;
        assert_eq!(keys(&config), ["control.store", "entities.send_timeout"]);
        config.entities.send_timeout = Duration::from_secs(8);
        assert_eq!(keys(&config), ["control.store"]);
        config.control.store = Store::Served;
        assert_eq!(keys(&config), [] as [&str; 0]);
        config.control.address.set_port(0);
        assert_eq!(keys(&config), ["control.address"]);
    }

    #[test]
    fn a_pinned_pod_has_no_more_threads_than_cores() {
        let mut config = Config::default();
        config.pod.cores = Cores::Count(3);
        assert_eq!(keys(&config), ["pod.cores"]);
        assert_eq!(config.problems(None), []);
        config.pod.pin = false;
        assert_eq!(keys(&config), [] as [&str; 0]);
    }
}
