//! The arguments of every command as plain structs, parsed by clap.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::Read;
use std::net::ToSocketAddrs as _;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};

use super::UsageError;
use crate::base::EntityId;
use crate::base::limits::LINK_BODY_BYTES_MAX;
use crate::pod::config::{Config, ConfigError, Flag, Loaded, MANAGER_PORT, parse_duration};

const EXAMPLES: &str = "\
Examples:
  atoll pod --dev                             a pod with everything embedded
  atoll call guild g1 join '{\"user\":\"ann\"}'   send a message, print the reply
  atoll ctl shards                            who owns which shard
  atoll manager --data-directory DIR          the store of several pods
  atoll check                                 is this machine fit? what to change
  atoll config reference > pod.toml           start a configuration file";

/// A thread-per-core server for addressed, sharded, single-writer entities, over io_uring.
#[derive(Debug, Parser)]
#[command(name = "atoll", version, after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a pod until SIGTERM or Ctrl-C.
    ///
    /// It serves the reference services `account`, `echo` and `guild`. A signal stops it cleanly: it answers what it
    /// received, then leaves.
    ///
    /// Every key of the configuration can be set by --set, by an environment variable such as ATOLL_POD_LISTEN, or in
    /// the file; `atoll config reference` explains them all.
    Pod(PodArguments),
    /// Serve the store of several pods until SIGTERM or Ctrl-C.
    ///
    /// It keeps the records that say which pod owns which shard, and what entities save, in a folder; pods reach it with
    /// `atoll pod --store ADDRESS`. It can be restarted at any time: nothing is lost, and no pod loses its lease.
    Manager(ManagerArguments),
    /// Send one message to an entity and print its reply as JSON.
    ///
    /// The entity is started if it is not running. The message must belong to a protocol that is marked `json`.
    Call(CallArguments),
    /// Look inside a running cluster, and order its pods about.
    Ctl(CtlArguments),
    /// Check whether this machine is fit, and say what to change.
    ///
    /// Looks at the kernel, io_uring, seccomp, locked memory, open files, cores, clock and network, for the
    /// configuration given. A fatal finding keeps a pod from starting; a warning costs speed.
    Check(CheckArguments),
    /// Show, explain and check the configuration.
    Config(ConfigCommandArguments),
}

/// The flags that select and override the configuration.
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigArguments {
    /// Configuration file (TOML); none means the defaults
    #[arg(long, short, value_name = "FILE", env = "ATOLL_CONFIG", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,

    /// Development: one unpinned core that does not spin, everything in memory
    #[arg(long)]
    pub dev: bool,

    /// Set any key of the configuration, such as `--set entities.max_idle=5m`; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,

    /// Cores to use: a number or "all"
    #[arg(long, value_name = "N")]
    pub cores: Option<String>,

    /// Address to listen at [default: 127.0.0.1:7400]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,

    /// Address that others reach this pod at, when it differs from --listen
    #[arg(long, value_name = "ADDR")]
    pub advertise: Option<String>,

    /// Folder of the embedded store, or "memory"
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub data_dir: Option<String>,

    /// Share the store of the `atoll manager` at this address with other pods
    #[arg(long, value_name = "ADDR")]
    pub store: Option<String>,

    /// How long an idle core looks for work before it sleeps: a duration, or "always"
    #[arg(long, value_name = "DURATION")]
    pub spin: Option<String>,

    /// Pin threads to cores (true) or let the kernel place them (false)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub pin: Option<String>,

    /// What to log: "error", "warn", "info", "debug" or "trace", also by module: "info,atoll::control=debug"
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
}

impl ConfigArguments {
    /// Loads the configuration: these flags over the environment over the file over the defaults.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its place and what to do.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        Config::load_from(self.config.as_deref(), &self.flags())
    }

    /// The flags as values of keys. A named flag counts before `--set`.
    #[must_use]
    pub fn flags(&self) -> Vec<Flag> {
        let set = self.set.iter().map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Flag { name: "--set".to_owned(), key: key.trim().to_owned(), value: value.trim().to_owned() }
        });
        let dev = self.dev.then(|| "true".to_owned());
        let served = self.store.as_ref().map(|_| "served".to_owned());
        let named = [
            ("--dev", "pod.dev", &dev),
            ("--cores", "pod.cores", &self.cores),
            ("--listen", "pod.listen", &self.listen),
            ("--advertise", "pod.advertise", &self.advertise),
            ("--data-dir", "pod.data_dir", &self.data_dir),
            ("--store", "control.store", &served),
            ("--store", "control.address", &self.store),
            ("--spin", "loop.spin", &self.spin),
            ("--pin", "pod.pin", &self.pin),
            ("--log-level", "log.level", &self.log_level),
        ];
        let named = named.into_iter().filter_map(|(name, key, value)| {
            value.as_ref().map(|value| Flag { name: name.to_owned(), key: key.to_owned(), value: value.clone() })
        });
        set.chain(named).collect()
    }
}

/// Arguments of `atoll pod`.
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "\
Examples:
  atoll pod --dev                        everything embedded, kind to a laptop
  atoll pod --config config/pod.toml     production: pinned cores, data on disk
  atoll pod --cores 4 --spin always      four cores that do nothing else
  atoll pod --store 10.0.0.2:7350        one of several pods that share an `atoll manager`
  ATOLL_POD_LISTEN=0.0.0.0:7400 atoll pod --advertise 10.0.0.7:7400")]
pub struct PodArguments {
    /// Configuration.
    #[command(flatten)]
    pub config: ConfigArguments,
}

/// Arguments of `atoll manager`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  atoll manager --data-directory /var/lib/atoll-manager
  atoll manager --listen 0.0.0.0:7350 --data-directory /var/lib/atoll-manager
  atoll pod --store 127.0.0.1:7350       a pod on it; several have different --listen

Whoever reaches the address can change everything: let only pods reach it.")]
pub struct ManagerArguments {
    /// Address at which pods reach it; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from(([127, 0, 0, 1], MANAGER_PORT)))]
    pub listen: SocketAddr,

    /// Folder for the records and for what entities save; made if it does not exist
    #[arg(long, visible_alias = "data-dir", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub data_directory: PathBuf,

    /// What to log: "error", "warn", "info", "debug" or "trace", also by module
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
}

/// How a command reaches a running cluster.
#[derive(Args, Clone, Debug)]
pub struct ClientArguments {
    /// Address of any pod of the cluster; several separated by commas are tried in order
    #[arg(
        long, value_name = "ADDR", env = "ATOLL_PODS", default_value = "127.0.0.1:7400", value_delimiter = ',',
        value_parser = parse_address, global = true
    )]
    pub pods: Vec<SocketAddr>,

    /// Name of the cluster, as in the configuration of its pods
    #[arg(long, value_name = "NAME", env = "ATOLL_POD_CLUSTER_NAME", default_value = "atoll", global = true)]
    pub cluster_name: String,

    /// How long to wait for the answer, as a number with ns, us, ms, s, m, h or d: "500ms", "1m30s"
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_timeout, global = true)]
    pub timeout: Duration,
}

/// Arguments of `atoll call`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  atoll call guild g1 join '{\"user\":\"ann\"}'
  atoll call guild g1 members
  echo '{\"user\":\"ann\"}' | atoll call guild g1 leave - --pods 10.0.0.7:7400 --timeout 500ms

A call that times out or is stopped (Ctrl-C) is cancelled: its message leaves the mailbox, or
its handler is dropped where it awaits, unless the message is `#[uninterruptible]`. It may have
been processed in part.

Exit code: 0 for a reply; 3 for an error that the message declares; 1 for every other failure,
such as no reply in time, an unknown message, arguments that it does not take, or no pod; 2 for
wrong usage.")]
pub struct CallArguments {
    /// Name of the entity type, such as `guild`
    pub entity_type: String,
    /// Id of the entity: 1 to 255 bytes
    #[arg(value_parser = parse_entity_id)]
    pub entity_id: EntityId,
    /// Name of the message, such as `join`
    pub method: String,
    /// Arguments of the message as a JSON object by name; `-` reads them from standard input
    #[arg(value_name = "JSON", default_value = "{}")]
    pub json: String,
    /// Where to send it.
    #[command(flatten)]
    pub client: ClientArguments,
}

impl CallArguments {
    /// The arguments of the message, from the command line or standard input: a JSON object as it was written, so that
    /// the entity sees numbers of any size and refuses a name that is there twice.
    ///
    /// # Errors
    /// If standard input cannot be read, or it is not a JSON object.
    pub fn body(&self) -> anyhow::Result<String> {
        let text = if self.json == "-" { read_bounded(std::io::stdin())? } else { self.json.clone() };
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| {
            UsageError(format!("the arguments are not JSON ({error}); write an object such as '{{\"user\":\"ann\"}}'"))
        })?;
        if !value.is_object() {
            let message = "the arguments are not a JSON object; write one such as '{\"user\":\"ann\"}'";
            return Err(UsageError(message.to_owned()).into());
        }
        Ok(text)
    }
}

/// Most bytes that are read from standard input: four times what a pod takes unless it is configured for more, and an
/// endless input does not fill the memory.
const INPUT_BYTES_MAX: u64 = 4 * LINK_BODY_BYTES_MAX as u64;

fn read_bounded(input: impl Read) -> anyhow::Result<String> {
    let mut text = String::new();
    if input.take(INPUT_BYTES_MAX + 1).read_to_string(&mut text)? as u64 > INPUT_BYTES_MAX {
        let message = format!("the arguments have more than {INPUT_BYTES_MAX} bytes; send less at once");
        return Err(UsageError(message).into());
    }
    Ok(text)
}

/// Arguments of `atoll ctl`.
#[derive(Args, Clone, Debug)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  atoll ctl pods
  atoll ctl entities guild --json
  atoll ctl locate guild g1 --pods 10.0.0.7:7400
  atoll ctl drain 10.0.0.8:7400
  atoll ctl rebalance --dry-run"
)]
pub struct CtlArguments {
    /// What to look at, or to order.
    #[command(subcommand)]
    pub command: CtlCommand,
    /// Where to ask.
    #[command(flatten)]
    pub client: ClientArguments,
    /// Print JSON instead of a table
    #[arg(long, global = true)]
    pub json: bool,
}

/// What `atoll ctl` can show and order.
#[derive(Clone, Debug, Subcommand)]
pub enum CtlCommand {
    /// The pods of the cluster: address, role, version, state, shards
    Pods,
    /// Which pod and core owns each shard
    Shards,
    /// The running entities of a type
    Entities {
        /// Name of the entity type, such as `guild`
        entity_type: String,
    },
    /// Which pod and core serves an entity
    Locate {
        /// Name of the entity type, such as `guild`
        entity_type: String,
        /// Id of the entity: 1 to 255 bytes
        #[arg(value_parser = parse_entity_id)]
        entity_id: EntityId,
    },
    /// The counters of each core
    Counters,
    /// Have a pod give its shards to others; it goes on running
    Drain {
        /// Address of the pod, or the beginning of its uid
        pod: String,
    },
    /// Give a pod no further shards; it keeps those it has
    Cordon {
        /// Address of the pod, or the beginning of its uid
        pod: String,
    },
    /// Let a pod take shards again, after `drain` or `cordon`
    Uncordon {
        /// Address of the pod, or the beginning of its uid
        pod: String,
    },
    /// Move shards to pods that have fewer: one round now, within the rate of the configuration
    Rebalance {
        /// Only show what would move
        #[arg(long)]
        dry_run: bool,
    },
}

/// Arguments of `atoll check`.
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "\
Examples:
  atoll check
  atoll check --cores 8 --json
  atoll check --config config/pod.toml

Exit code: 0 if a pod can start, 1 if something fatal was found, 2 for a wrong configuration.")]
pub struct CheckArguments {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Configuration.
    #[command(flatten)]
    pub config: ConfigArguments,
}

/// Arguments of `atoll config`.
#[derive(Args, Clone, Debug)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  atoll config reference > pod.toml
  atoll config show --config pod.toml --cores 4
  atoll config check pod.toml"
)]
pub struct ConfigCommandArguments {
    /// What to do with it.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What `atoll config` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every key with its explanation and default, as a file to start from
    Reference,
    /// Print the effective configuration and where each value came from
    Show {
        /// Print JSON instead of TOML
        #[arg(long)]
        json: bool,
        /// Configuration.
        #[command(flatten)]
        config: Box<ConfigArguments>,
    },
    /// Check a configuration file, apart from the environment and this machine
    Check {
        /// The file
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

/// Reads `ADDRESS:PORT` or `NAME:PORT`; a name is looked up.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let expected = "write an address with a port, such as 127.0.0.1:7400 or pod-1.example:7400";
    match text.to_socket_addrs() {
        Ok(mut addresses) => addresses.next().ok_or_else(|| format!("the name has no address; {expected}")),
        Err(error) => Err(format!("{error}; {expected}")),
    }
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .and_then(|timeout| if timeout.is_zero() { Err("write more than zero".to_owned()) } else { Ok(timeout) })
}

fn parse_entity_id(text: &str) -> Result<EntityId, String> {
    EntityId::new(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_flag_sets_a_key_that_exists() {
        let some = || Some("1".to_owned());
        let all = ConfigArguments {
            config: None,
            dev: true,
            set: Vec::new(),
            cores: some(),
            listen: some(),
            advertise: some(),
            data_dir: some(),
            store: some(),
            spin: some(),
            pin: some(),
            log_level: some(),
        };
        let flags = all.flags();
        assert_eq!(flags.len(), 10);
        for flag in flags {
            assert!(Config::KEYS.iter().any(|key| key.path() == flag.key), "{}", flag.key);
        }
    }

    #[test]
    fn flags_of_a_cluster_may_stand_on_either_side_of_the_subcommand() {
        for line in ["atoll ctl --pods 1.2.3.4:5 --json pods", "atoll ctl pods --json --pods 1.2.3.4:5"] {
            let Command::Ctl(ctl) = Arguments::try_parse_from(line.split(' ')).unwrap().command else { panic!() };
            assert_eq!(ctl.client.pods, ["1.2.3.4:5".parse::<SocketAddr>().unwrap()], "{line}");
            assert!(ctl.json);
        }
    }

    #[test]
    fn a_call_is_read_whole() {
        let line = [
            "atoll",
            "call",
            "guild",
            "g1",
            "join",
            "{\"user\":\"ann\"}",
            "--pods",
            "1.2.3.4:5,[::1]:6",
            "--timeout",
            "50ms",
        ];
        let Command::Call(call) = Arguments::try_parse_from(line).unwrap().command else { panic!() };
        assert_eq!((call.entity_type.as_str(), call.entity_id.as_str(), call.method.as_str()), ("guild", "g1", "join"));
        assert_eq!(call.body().unwrap(), "{\"user\":\"ann\"}");
        assert_eq!(call.client.pods.len(), 2);
        assert_eq!(call.client.timeout, Duration::from_millis(50));
    }

    #[test]
    fn arguments_are_sent_as_they_were_written() {
        for json in ["{\"n\":340282366920938463463374607431768211455}", "{\"n\":1,\"n\":2}"] {
            let line = ["atoll", "call", "counter", "c1", "set", json];
            let Command::Call(call) = Arguments::try_parse_from(line).unwrap().command else { panic!() };
            assert_eq!(call.body().unwrap(), json);
        }
    }

    #[test]
    fn an_endless_input_ends_with_an_error() {
        assert!(read_bounded(std::io::repeat(b'a')).unwrap_err().is::<UsageError>());
        assert_eq!(read_bounded(&b"{}"[..]).unwrap(), "{}");
    }

    #[test]
    fn no_line_of_the_help_is_broken_twice() {
        let mut command = Arguments::command();
        for sub in command.get_subcommands_mut() {
            let texts = sub.get_after_help().into_iter().map(ToString::to_string);
            let long: Vec<_> = texts
                .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
                .filter(|line| line.len() > 100)
                .collect();
            assert!(long.is_empty(), "{long:?}");
        }
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        let long = "x".repeat(256);
        for line in [
            vec!["atoll", "call", "guild", "", "join"],
            vec!["atoll", "call", "guild", &long, "join"],
            vec!["atoll", "call", "guild", "g1", "join", "--timeout", "0s"],
            vec!["atoll", "call", "guild", "g1", "join", "--pods", "nonsense"],
        ] {
            assert!(Arguments::try_parse_from(&line).is_err(), "{line:?}");
        }
        for json in ["[1]", "{", ""] {
            let line = ["atoll", "call", "guild", "g1", "join", json];
            let Command::Call(call) = Arguments::try_parse_from(line).unwrap().command else { panic!() };
            assert!(call.body().unwrap_err().is::<UsageError>(), "{json}");
        }
    }
}
