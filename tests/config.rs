//! The configuration as users meet it: precedence, messages with their places, reference and examples.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use atoll::pod::config::{
    Config, Cores, FileText, Flag, Loaded, Origin, Place, Sources, Spin, Store, reference, show, show_json,
};

fn pairs(environment: &[(&str, &str)]) -> Vec<(String, String)> {
    environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn flags(flags: &[(&str, &str)]) -> Vec<Flag> {
    let flag = |(key, value): &(&str, &str)| Flag {
        name: format!("--{}", key.rsplit('.').next().unwrap()),
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    };
    flags.iter().map(flag).collect()
}

/// The configuration, or its problems as the user reads them.
fn resolve(text: &str, environment: &[(&str, &str)], given: &[(&str, &str)]) -> Result<Loaded, Vec<String>> {
    let (environment, flags) = (pairs(environment), flags(given));
    let file = Some(FileText { path: "pod.toml", text });
    let sources = Sources { file, environment: &environment, flags: &flags, cores_available: Some(4) };
    Config::resolve(&sources).map_err(|error| error.problems.iter().map(ToString::to_string).collect())
}

fn problems(text: &str) -> Vec<String> {
    resolve(text, &[], &[]).expect_err(text)
}

#[test]
fn nothing_given_means_the_defaults() {
    let loaded = Config::resolve(&Sources::default()).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert_eq!(loaded.config.pod.listen, SocketAddr::from(([127, 0, 0, 1], 7400)));
    assert_eq!(loaded.config.pod.cores, Cores::All);
    assert_eq!(loaded.config.control.store, Store::Embedded);
    assert!(loaded.config.links.body_checksum);
    assert!(Config::KEYS.iter().all(|key| loaded.origin(&key.path()) == Origin::Default));
}

#[test]
fn a_flag_counts_before_a_variable_before_the_file_before_the_default() {
    type Row = (
        &'static str,
        &'static [(&'static str, &'static str)],
        &'static [(&'static str, &'static str)],
        u16,
        &'static str,
    );
    const FILE: &str = "[pod]\ncores = 1\n";
    let rows: [Row; 5] = [
        (FILE, &[], &[], 1, "pod.toml:2"),
        (FILE, &[("ATOLL_POD_CORES", "2")], &[], 2, "environment variable ATOLL_POD_CORES"),
        (FILE, &[("ATOLL_POD_CORES", "2")], &[("pod.cores", "3")], 3, "flag --cores"),
        ("", &[("ATOLL_POD_CORES", "2")], &[("pod.cores", "3")], 3, "flag --cores"),
        ("", &[], &[("pod.cores", "3"), ("pod.cores", "4")], 4, "flag --cores"),
    ];
    for (file, environment, flags, cores, origin) in rows {
        let loaded = resolve(file, environment, flags).unwrap();
        assert_eq!(loaded.config.pod.cores, Cores::Count(cores), "{file} {environment:?} {flags:?}");
        assert_eq!(loaded.origin("pod.cores").to_string(), origin);
    }
}

#[test]
fn every_key_can_be_set_in_every_way() {
    // Another value than the default for each, by file, variable and flag.
    let values = [
        ("pod.listen", "\"127.0.0.1:9\""),
        ("pod.advertise", "\"10.0.0.1:9\""),
        ("pod.cluster_name", "\"other\""),
        ("pod.role", "\"other\""),
        ("pod.version", "\"2.0\""),
        ("pod.cores", "2"),
        ("pod.pin", "false"),
        ("pod.data_dir", "\"/data\""),
        ("pod.drain_timeout", "\"7s\""),
        ("pod.dev", "true"),
        ("sharding.number_of_shards", "7"),
        ("sharding.hash_seed", "7"),
        ("entities.max_idle", "\"7s\""),
        ("entities.termination_timeout", "\"7s\""),
        ("entities.mailbox_capacity", "7"),
        ("entities.send_timeout", "\"7s\""),
        ("links.frame_bytes_max", "\"2MiB\""),
        ("links.in_flight_max", "7"),
        ("links.send_bytes_max", "\"2MiB\""),
        ("links.body_checksum", "false"),
        ("links.hello_timeout", "\"7s\""),
        ("loop.spin", "\"always\""),
        ("loop.slice", "\"7us\""),
        ("loop.receive_buffers", "8"),
        ("loop.receive_buffer_bytes", "\"8KiB\""),
        ("loop.stall", "\"7ms\""),
        ("control.store", "\"embedded\""),
        ("control.address", "\"127.0.0.1:7\""),
        ("control.lease_ttl", "\"7s\""),
        ("control.settle", "\"7ms\""),
        ("control.rebalance_interval", "\"7s\""),
        ("control.rebalance_rate_per_mille", "7"),
        ("log.level", "\"debug\""),
        ("log.format", "\"json\""),
    ];
    let named: BTreeSet<&str> = values.iter().map(|(path, _)| *path).collect();
    let known: Vec<String> = Config::KEYS.iter().map(|key| key.path()).collect();
    assert_eq!(named, known.iter().map(String::as_str).collect());
    for (path, literal) in values {
        let (section, name) = path.split_once('.').unwrap();
        let key = Config::KEYS.iter().find(|key| key.path() == path).unwrap();
        let plain = literal.trim_matches('"');
        let by_file = resolve(&format!("[{section}]\n{name} = {literal}"), &[], &[]).unwrap().config;
        let by_variable = resolve("", &[(&key.variable(), plain)], &[]).unwrap().config;
        let by_flag = resolve("", &[], &[(path, plain)]).unwrap().config;
        assert_eq!((key.get)(&by_file).to_string(), literal);
        assert_eq!((&by_file, &by_file), (&by_variable, &by_flag), "{path}");
        assert_eq!(by_file == Config::default(), path == "control.store", "{path}");
        // The same file through serde, as in a larger configuration of a user's own.
        if path != "pod.dev" {
            assert_eq!(toml::from_str::<Config>(&format!("[{section}]\n{name} = {literal}")).unwrap(), by_file);
        }
    }
}

#[test]
fn development_changes_defaults_only() {
    for loaded in [
        resolve("[pod]\ndev = true", &[], &[]).unwrap(),
        resolve("", &[("ATOLL_POD_DEV", "true")], &[]).unwrap(),
        resolve("[pod]\ndev = false", &[], &[("pod.dev", "true")]).unwrap(),
    ] {
        assert_eq!(loaded.config, Config::dev());
        assert_eq!(loaded.origin("pod.pin"), Origin::Development);
        assert_eq!(loaded.origin("pod.role"), Origin::Default);
    }
    let loaded = resolve("[pod]\ndev = true\n[loop]\nspin = \"5us\"", &[("ATOLL_POD_CORES", "2")], &[]).unwrap();
    assert_eq!(loaded.config.event_loop.spin, Spin::For(Duration::from_micros(5)));
    assert_eq!(loaded.config.pod.cores, Cores::Count(2));
    assert_eq!(loaded.origin("loop.spin"), Origin::Set(Place::File { path: "pod.toml".to_owned(), line: Some(4) }));
    let off = resolve("[pod]\ndev = true", &[], &[("pod.dev", "false")]).unwrap();
    assert_eq!(off.config, Config::default());
}

#[test]
fn an_unknown_name_is_an_error_with_its_line_and_the_nearest_name() {
    let rows: [(&str, &str); 10] = [
        (
            "# a\n[pod]\nlisen = \"127.0.0.1:1\"\n",
            "pod.toml:3: there is no key `lisen` in [pod]; did you mean `listen`?",
        ),
        ("[pods]\nlisten = \"127.0.0.1:1\"\n", "pod.toml:1: there is no section [pods]; did you mean [pod]?"),
        (
            "\n[network]\n",
            "pod.toml:2: there is no section [network]; remove it, the sections are pod, sharding, entities, links, loop, control, log",
        ),
        (
            "[pod]\nsend_timeout = \"1s\"\n",
            "pod.toml:2: there is no key `send_timeout` in [pod]; move it below the line [entities]",
        ),
        (
            "[pod]\nsend_timout = \"1s\"\n",
            "pod.toml:2: there is no key `send_timout` in [pod]; did you mean `send_timeout` in [entities]?",
        ),
        (
            "[pod]\npassword = 1\n",
            "pod.toml:2: there is no key `password` in [pod]; remove it, or see `atoll config reference` for the keys there are",
        ),
        ("role = \"a\"\n[pod]\n", "pod.toml:1: `role` stands outside of any section; move it below the line [pod]"),
        ("pod = 1\n", "pod.toml:1: `pod` is a section; write its keys below a line `[pod]`"),
        ("pod.lisen = \"a\"\n", "pod.toml:1: there is no key `lisen` in [pod]; did you mean `listen`?"),
        ("[[pod]]\nrole = \"a\"\n", "pod.toml:1: `pod` is a section; write its keys below a line `[pod]`"),
    ];
    for (text, expected) in rows {
        assert_eq!(problems(text), [expected], "{text}");
    }
}

#[test]
fn a_wrong_value_is_an_error_that_says_what_to_write() {
    let rows: [(&str, &str); 16] = [
        (
            "[pod]\ncores = 0",
            "pod.toml:2: `pod.cores` does not take the number 0; write a number of cores, 1 or more, or \"all\"",
        ),
        (
            "[pod]\ncores = 5",
            "pod.toml:2: `pod.cores` is 5 and this process may run on 4; write 4 or less or \"all\", or set `pod.pin` to false",
        ),
        ("[pod]\npin = \"yes\"", "pod.toml:2: `pod.pin` does not take the text \"yes\"; write true or false"),
        (
            "[pod]\nlisten = \"localhost\"",
            "pod.toml:2: `pod.listen` does not take the text \"localhost\"; write an IP address with a port, such as \"127.0.0.1:7400\" or \"[::1]:7400\"",
        ),
        (
            "[pod]\nlisten = \"0.0.0.0:1\"",
            "pod.toml:2: `pod.listen` is 0.0.0.0:1, which others cannot connect to; set `pod.advertise` to the address by which they reach this pod",
        ),
        ("[pod]\nrole = \"a b\"", "pod.toml:2: `pod.role` is \"a b\"; write 1 to 64 letters, digits, `-`, `_` or `.`"),
        (
            "[pod]\nversion = \"1.x\"",
            "pod.toml:2: `pod.version` is \"1.x\"; write one to four numbers with dots, such as \"1.2.0\"",
        ),
        (
            "[entities]\n\nmax_idle = 60",
            "pod.toml:3: `entities.max_idle` does not take the number 60; write a duration such as \"5s\", \"50us\" or \"1m30s\"",
        ),
        (
            "[entities]\nmax_idle = [1]",
            "pod.toml:2: `entities.max_idle` does not take a TOML array; write a duration such as \"5s\", \"50us\" or \"1m30s\"",
        ),
        ("[entities]\nmailbox_capacity = -1", "pod.toml:2: `entities.mailbox_capacity` is -1; write 0 to 4294967295"),
        ("[sharding]\nnumber_of_shards = 65537", "pod.toml:2: `sharding.number_of_shards` is 65537; write 1 to 65536"),
        (
            "[links]\nframe_bytes_max = \"1GB\"",
            "pod.toml:2: `links.frame_bytes_max` does not take the text \"1GB\"; write a size such as \"64KiB\" or \"1MiB\"",
        ),
        (
            "[links]\nframe_bytes_max = \"1GiB\"\nsend_bytes_max = \"1GiB\"",
            "pod.toml:2: `links.frame_bytes_max` is 1GiB; write \"4KiB\" to \"64MiB\"",
        ),
        ("[loop]\nreceive_buffers = 100", "pod.toml:2: `loop.receive_buffers` must be a power of two; write 128"),
        (
            "[control]\nstore = \"etcd\"",
            "pod.toml:2: `control.store` is \"etcd\", which this build does not have; write \"embedded\" or \"served\"",
        ),
        (
            "[log]\nformat = \"xml\"",
            "pod.toml:2: `log.format` does not take the text \"xml\"; write \"text\" or \"json\"",
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(problems(text), [expected], "{text}");
    }
}

#[test]
fn values_that_contradict_one_another_name_where_they_were_set() {
    let text = "[links]\nframe_bytes_max = \"16MiB\"\n";
    let expected = "configuration: `links.send_bytes_max` is less than `links.frame_bytes_max`, so a largest frame could never be sent; write 16MiB or more";
    assert_eq!(problems(text), [expected]);
    let text = "[pod]\ndrain_timeout = \"1s\"\n";
    let expected = "pod.toml:2: `pod.drain_timeout` is shorter than `entities.termination_timeout`, so a stop would cut entities off; write \"3s\" or more";
    assert_eq!(problems(text), [expected]);
    let text = "[control]\nlease_ttl = \"5s\"\nstore = \"etcd\"\n[entities]\nsend_timeout = \"7s\"\n";
    let expected = "pod.toml:5: `entities.send_timeout` is shorter than `control.lease_ttl` + 3s, so no message would survive a crash; write \"8s\" or more";
    assert!(problems(text).contains(&expected.to_owned()), "{:?}", problems(text));
}

#[test]
fn wrong_variables_and_flags_are_named() {
    let rows: [(&str, &str, &str); 4] = [
        (
            "ATOLL_POD_LISEN",
            "1",
            "environment variable ATOLL_POD_LISEN: no such setting; did you mean ATOLL_POD_LISTEN?",
        ),
        (
            "ATOLL_WHATEVER",
            "1",
            "environment variable ATOLL_WHATEVER: no such setting; unset it, or see `atoll config reference` for the names there are",
        ),
        (
            "ATOLL_POD_PIN",
            "1",
            "environment variable ATOLL_POD_PIN: `pod.pin` does not take the text \"1\"; write true or false",
        ),
        (
            "ATOLL_LOOP_SLICE",
            "1s",
            "environment variable ATOLL_LOOP_SLICE: `loop.slice` is 1s; write \"1us\" to \"10ms\"",
        ),
    ];
    for (name, value, expected) in rows {
        assert!(resolve("", &[(name, value)], &[]).unwrap_err().contains(&expected.to_owned()), "{name}");
    }
    for harmless in ["ATOLL_CONFIG", "ATOLL_PODS", "ATOLL_BENCH_ANYTHING", "PATH", "atoll_pod_listen"] {
        assert!(resolve("", &[(harmless, "x")], &[]).is_ok(), "{harmless}");
    }
    let expected = "flag --coers: there is no key `pod.coers`; did you mean `pod.cores`?";
    assert_eq!(resolve("", &[], &[("pod.coers", "1")]).unwrap_err(), [expected]);
}

#[test]
fn a_value_is_checked_even_where_another_source_counts() {
    assert_eq!(resolve("[pod]\ncores = \"many\"", &[], &[("pod.cores", "1")]).unwrap_err().len(), 1);
}

#[test]
fn all_problems_are_told_at_once_in_the_order_of_the_file() {
    let found = problems("[pod]\nzebra = 1\napple = 1\n[log]\nlevel = 3\n");
    let lines: Vec<&str> = found.iter().map(|problem| problem.split(": ").next().unwrap()).collect();
    assert_eq!(lines, ["pod.toml:2", "pod.toml:3", "pod.toml:5"]);
}

#[test]
fn what_is_not_toml_is_told_with_its_line() {
    for (text, line) in [("[pod]\nlisten = \n", 2), ("[pod\n", 1), ("[pod]\nrole = \"a\"\nrole = \"b\"\n", 3)] {
        let found = problems(text);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with(&format!("pod.toml:{line}: this is not TOML: ")), "{}", found[0]);
    }
}

#[test]
fn serde_refuses_unknown_keys_too() {
    assert!(toml::from_str::<Config>("[pod]\nlisen = 1").unwrap_err().to_string().contains("listen"));
    assert!(toml::from_str::<Config>("[pods]\n").is_err());
}

#[test]
fn the_reference_has_every_key_with_exactly_its_default() {
    let committed = include_str!("../config/reference.toml");
    assert_eq!(committed, reference(), "write it again: atoll config reference > config/reference.toml");
    assert_eq!(resolve(committed, &[], &[]).unwrap().config, Config::default());
    let table: toml::Table = committed.parse().unwrap();
    let expected = toml::Table::try_from(Config::default()).unwrap();
    assert_eq!(table, expected);
    for key in Config::KEYS {
        assert!(!key.documentation.is_empty());
        assert!(committed.contains(&key.variable()));
    }
}

#[test]
fn the_examples_are_usable() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let production = Config::load_file(&folder.join("pod.toml")).unwrap().config;
    assert!(production.pod.pin && production.pod.data_dir.is_some() && !production.pod.dev);
    let mut development = Config::load_file(&folder.join("dev.toml")).unwrap().config;
    development.log = Config::dev().log;
    assert_eq!(development, Config::dev());
}

#[test]
fn a_file_that_is_not_there_is_told_with_what_to_do() {
    let error = Config::load_file(Path::new("no/such.toml")).unwrap_err().to_string();
    assert!(error.starts_with("no/such.toml: there is no such file; "), "{error}");
    let error = Config::load_file(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap_err().to_string();
    assert!(error.contains("cannot be read"), "{error}");
}

#[test]
fn what_is_shown_reads_the_same_and_says_where_it_came_from() {
    let loaded = resolve("[pod]\nrole = \"a\"\ndata_dir = '/x \"y\"'", &[("ATOLL_LOOP_SPIN", "always")], &[]).unwrap();
    let shown = show(&loaded);
    assert_eq!(resolve(&shown, &[], &[]).unwrap().config, loaded.config);
    assert!(shown.lines().any(|line| line.starts_with("role = \"a\"") && line.ends_with("# pod.toml:2")), "{shown}");
    let json = show_json(&loaded);
    assert_eq!(json["loop"]["spin"]["value"], "always");
    assert_eq!(json["loop"]["spin"]["origin"], "environment variable ATOLL_LOOP_SPIN");
    assert_eq!(json["pod"]["pin"]["value"], true);
}

#[test]
fn a_log_level_that_the_parser_cannot_take_is_an_error() {
    for level in [" µ[", "µ", "info,µ[a=1]=debug", "日本", "é=trace"] {
        let refused = resolve(&format!("[log]\nlevel = \"{level}\""), &[], &[]);
        let error = refused.map(drop).unwrap_err().join(" ");
        assert!(error.contains("log.level"), "{level}: {error}");
    }
}

mod any_text {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_input_panics(text in ".*", name in "[A-Z_]*", value in ".*", key in "[a-z._]*") {
            let _ = resolve(&text, &[(&format!("ATOLL_{name}"), &value)], &[(&key, &value)]);
        }

        #[test]
        fn no_value_of_a_real_key_panics(at in 0..Config::KEYS.len(), value in "[0-9a-z.:µ\"\\[\\] -]*") {
            let key = &Config::KEYS[at];
            let _ = resolve(&format!("[{}]\n{} = {value}", key.section, key.name), &[], &[]);
            let _ = resolve("", &[(&key.variable(), &value)], &[]);
        }
    }
}
