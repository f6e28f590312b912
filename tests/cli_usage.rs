//! The real binary: help, exit codes, messages, and the commands that need no pod.

use std::process::{Command, Output};

/// Runs `atoll` with the variables given and no other `ATOLL_` one.
fn atoll(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ATOLL_")) {
        command.env_remove(name);
    }
    command.args(arguments).envs(environment.iter().copied()).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn help_names_every_command_with_examples() {
    let output = atoll(&["--help"], &[]);
    assert!(output.status.success());
    for word in ["pod", "manager", "call", "ctl", "check", "config", "Examples:", "atoll pod --dev"] {
        assert!(out(&output).contains(word), "{word}");
    }
    for command in ["pod", "manager", "call", "ctl", "check", "config"] {
        let output = atoll(&[command, "--help"], &[]);
        assert!(output.status.success());
        assert!(out(&output).contains(&format!("atoll {command}")), "{command}");
        assert!(out(&output).contains("Examples:"), "{command}");
    }
}

#[test]
fn no_command_prints_the_help() {
    let output = atoll(&[], &[]);
    assert!(format!("{}{}", out(&output), err(&output)).contains("Usage: atoll <COMMAND>"));
}

#[test]
fn the_version_is_that_of_the_package() {
    let output = atoll(&["--version"], &[]);
    assert_eq!(out(&output), format!("atoll {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_is_exit_code_2_on_standard_error() {
    for arguments in [
        &["dance"][..],
        &["pod", "--lisen", "x"],
        &["call", "guild"],
        &["call", "guild", "", "join"],
        &["call", "guild", "g1", "join", "--timeout", "5"],
        &["ctl", "locate", "guild"],
        &["config", "check"],
        &["config", "show", "--set", "pod.coers=1"],
        &["config", "show", "--cores", "0"],
    ] {
        let output = atoll(arguments, &[]);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(err(&output).starts_with("error: "), "{arguments:?}: {}", err(&output));
        assert_eq!(out(&output), "", "{arguments:?}");
    }
}

#[test]
fn a_wrong_key_is_named_with_file_line_and_suggestion() {
    let file = file("[pod]\nrole = \"a\"\nlisen = \"127.0.0.1:1\"\n");
    let path = file.path().to_str().unwrap();
    let expected = format!("error: {path}:3: there is no key `lisen` in [pod]; did you mean `listen`?\n");
    for arguments in
        [&["config", "check", path][..], &["config", "show", "--config", path], &["check", "--config", path]]
    {
        let output = atoll(arguments, &[]);
        assert_eq!((output.status.code(), err(&output)), (Some(2), expected.clone()), "{arguments:?}");
    }
}

#[test]
fn what_is_no_configuration_is_one_sentence() {
    for path in ["/dev/zero", "/", "/there/is/none"] {
        let output = atoll(&["config", "check", path], &[]);
        assert_eq!(output.status.code(), Some(2), "{path}");
        assert!(err(&output).starts_with(&format!("error: {path}: ")), "{}", err(&output));
        assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
    }
}

#[test]
fn a_right_file_is_ok() {
    let file = file("[pod]\ncores = 4000\n");
    let output = atoll(&["config", "check", file.path().to_str().unwrap()], &[]);
    assert!(output.status.success(), "a file is checked apart from this machine: {}", err(&output));
    assert!(out(&output).ends_with(": ok\n"));
}

#[test]
fn the_effective_configuration_is_shown_with_its_origins() {
    let file = file("[pod]\nrole = \"a\"\ncluster_name = \"c\"\n[loop]\nslice = \"30us\"\n");
    let path = file.path().to_str().unwrap();
    let environment = [("ATOLL_CONFIG", path), ("ATOLL_POD_ROLE", "b"), ("ATOLL_POD_CORES", "all")];
    let arguments = ["config", "show", "--set", "loop.slice=40us", "--cores=1", "--dev"];
    let output = atoll(&arguments, &environment);
    let text = out(&output);
    for (start, origin) in [
        ("role = \"b\" ", "environment variable ATOLL_POD_ROLE".to_owned()),
        ("cluster_name = \"c\" ", format!("{path}:3")),
        ("slice = \"40us\" ", "flag --set".to_owned()),
        ("cores = 1 ", "flag --cores".to_owned()),
        ("pin = false ", "default of --dev".to_owned()),
        ("version = \"1.0.0\" ", "default".to_owned()),
    ] {
        let line = text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start} in {text}"));
        assert!(line.ends_with(&format!("# {origin}")), "{line}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&atoll(&["config", "show", "--json"], &environment).stdout).unwrap();
    assert_eq!(
        json["pod"]["role"],
        serde_json::json!({ "value": "b", "origin": "environment variable ATOLL_POD_ROLE" })
    );
}

#[test]
fn the_reference_can_be_checked() {
    let output = atoll(&["config", "reference"], &[]);
    let file = file(&out(&output));
    assert!(atoll(&["config", "check", file.path().to_str().unwrap()], &[]).status.success());
}

#[test]
fn the_check_says_what_is_and_what_should_be() {
    let output = atoll(&["check", "--json", "--dev"], &[]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let names: Vec<&str> = findings.iter().map(|finding| finding["name"].as_str().unwrap()).collect();
    for name in ["kernel", "io_uring", "multishot receive", "locked memory", "open files", "cores", "clock"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    let fatal = findings.iter().any(|finding| finding["severity"] == "fatal");
    assert_eq!(report["fit"], !fatal);
    assert_eq!(output.status.code(), Some(i32::from(fatal)));
    for finding in findings.iter().filter(|finding| finding["severity"] == "fatal") {
        assert!(finding["fix"].is_string(), "{finding}");
    }
}

#[test]
fn a_fatal_finding_is_exit_code_1() {
    let output = atoll(&["check", "--cores", "9999"], &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = out(&output);
    assert!(text.lines().any(|line| line.starts_with("FATAL") && line.contains("9999 configured")), "{text}");
    assert!(text.contains("a pod cannot run here"), "{text}");
}
