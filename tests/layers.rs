//! The rules of the source tree: which layer may name which, what pure layers must not touch, where unsafe code is,
//! how long a file may be, and that each says what it is. `docs/architecture.md` explains the layers.
//!
//! Each rule is a function from text to violations, so that planted violations show that it can fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path as FilePath, PathBuf};

#[path = "layers/source.rs"]
mod source;

use source::{Path, inner_attributes, paths, tokens, without_tests};

/// Each folder of `src/` and the folders that it may name. One that is not listed here is a violation.
const LAYERS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("wire", &["base"]),
    ("mesh", &["base"]),
    ("stream", &["base", "wire", "mesh"]),
    ("entity", &["base", "wire", "mesh", "stream"]),
    ("sharding", &["base", "wire", "entity"]),
    ("control", &["base", "wire", "sharding"]),
    ("engine", &["base", "wire", "mesh", "stream", "entity", "sharding", "control"]),
    ("stores", &["base", "wire", "sharding", "control"]),
    ("runtime", &["base", "mesh", "stream"]),
    ("transport", &["base", "wire", "runtime"]),
    // A client has no store: it learns the table from any pod.
    ("client", &["base", "wire", "mesh", "stream", "entity", "sharding", "control", "engine", "runtime", "transport"]),
    (
        "pod",
        &[
            "base",
            "wire",
            "mesh",
            "stream",
            "entity",
            "sharding",
            "control",
            "engine",
            "stores",
            "runtime",
            "transport",
            "client",
        ],
    ),
    // Written as a user writes them: what the crate's root exports, and `base`.
    ("services", &["base"]),
    (
        "cli",
        &[
            "base",
            "wire",
            "mesh",
            "stream",
            "entity",
            "sharding",
            "control",
            "engine",
            "stores",
            "runtime",
            "transport",
            "client",
            "pod",
            "services",
        ],
    ),
    ("main.rs", &["cli"]),
];

/// Layers whose names at the crate's root the services may use.
const ROOT_EXPORTS_FOR_SERVICES: &[&str] = &["base", "entity", "wire", "stores"];

/// File, layer, reason.
const EDGE_EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("src/services/echo.rs", "entity", "`atoll::entity::sleep` is public, but not exported at the root"),
    ("src/services/account.rs", "stores", "the requests and errors of `StateStore`, which is exported at the root"),
];

/// Layers without I/O, threads and clock: they are what Miri, property tests and a simulator run.
const PURE: &[&str] = &["base", "wire", "mesh", "stream", "entity", "sharding", "control", "engine", "services"];

/// What a pure layer must not name outside its tests, as the beginning of a path.
const IMPURE: &[&[&str]] = &[
    &["glommio"],
    &["tokio"],
    &["io_uring"],
    &["libc"],
    &["redb"],
    &["std", "env"],
    &["std", "fs"],
    &["std", "io"],
    &["std", "net"],
    &["std", "os"],
    &["std", "process"],
    &["std", "thread"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
];

/// File, path, reason.
const IMPURE_EXCEPTIONS: &[(&str, &str, &str)] =
    &[("src/services/echo.rs", "std::time::Instant", "`spin` keeps a core busy for a time, which is its purpose")];

/// The files with unsafe code. One more is a decision: say in its documentation why, and add it here.
const UNSAFE_FILES: &[&str] = &[
    "src/cli/check/ring.rs",
    "src/engine/parcel.rs",
    "src/engine/payload.rs",
    "src/engine/routes.rs",
    "src/entity/ask.rs",
    "src/entity/cell.rs",
    "src/entity/dispatch.rs",
    "src/entity/host.rs",
    "src/entity/hosting.rs",
    "src/entity/in_place.rs",
    "src/entity/incoming.rs",
    "src/entity/infallible.rs",
    "src/entity/intercepted.rs",
    "src/entity/interceptor.rs",
    "src/entity/mailbox.rs",
    "src/entity/ownership.rs",
    "src/entity/pending.rs",
    "src/entity/pool.rs",
    "src/entity/reply.rs",
    "src/entity/router.rs",
    "src/entity/scope.rs",
    "src/entity/slot.rs",
    "src/entity/stopping.rs",
    "src/mesh/in_place.rs",
    "src/mesh/spsc.rs",
    "src/mesh/woken.rs",
    "src/runtime/clock.rs",
    "src/runtime/uring/bell.rs",
    "src/runtime/uring/buffers.rs",
    "src/runtime/uring/probe.rs",
    "src/runtime/uring/ring.rs",
    "src/runtime/uring/sockets.rs",
    "src/stream/boundary/ring.rs",
    "src/stream/interpreter/arena.rs",
    "src/stream/interpreter/builder.rs",
    "src/stream/interpreter/connection.rs",
    "src/stream/interpreter/context.rs",
    "src/stream/interpreter/events.rs",
    "src/stream/interpreter/overrides.rs",
    "src/stream/interpreter/ports.rs",
    "src/stream/interpreter/snapshot.rs",
    "src/wire/checksum.rs",
    "src/wire/never.rs",
];

/// A file with more lines has more than one subject.
const FILE_LINES_MAX: usize = 800;

/// File, the lines it may have, reason.
const LENGTH_EXCEPTIONS: &[(&str, usize, &str)] =
    &[("src/control/membership.rs", 820, "over by a few lines of its tests, which belong in a file of their own")];

// ---- rules ----

/// Which layer each name at the crate's root comes from, read from the `pub use` lines of `lib.rs`.
fn root_exports(lib: &str) -> BTreeMap<String, String> {
    let exported = paths(&tokens(lib)).into_iter().filter(|path| path.inline_modules == 0 && path.words.len() >= 2);
    exported.map(|path| (path.words[path.words.len() - 1].clone(), path.words[0].clone())).collect()
}

/// How deep the module of a file lies: 1 for `src/wire/mod.rs`, 2 for `src/wire/codec.rs`.
fn module_depth(file: &str) -> usize {
    let parts = file.trim_start_matches("src/").split('/').count();
    if file.ends_with("/mod.rs") { parts - 1 } else { parts }
}

/// The name at the crate's root that a path of a file means, if it leads there.
fn name_at_root(path: &Path, file_depth: usize) -> Option<&str> {
    let words: Vec<&str> = path.words.iter().map(String::as_str).skip_while(|word| *word == "self").collect();
    match *words.first()? {
        "crate" | "atoll" => words.get(1).copied(),
        "super" => {
            let ups = words.iter().take_while(|word| **word == "super").count();
            if ups == file_depth + path.inline_modules { words.get(ups).copied() } else { None }
        }
        _ => None,
    }
}

fn layer_of(file: &str) -> &str {
    file.trim_start_matches("src/").split('/').next().unwrap_or_default()
}

fn wrong_edges(file: &str, text: &str, exports: &BTreeMap<String, String>) -> Vec<String> {
    let layer = layer_of(file);
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == layer) else {
        return vec![format!("{file}: `{layer}` is no layer; add it to the table of tests/layers.rs")];
    };
    let mut wrong = BTreeSet::new();
    for path in paths(&tokens(text)) {
        let Some(name) = name_at_root(&path, module_depth(file)) else { continue };
        let named = match exports.get(name) {
            Some(origin) if layer == "services" && ROOT_EXPORTS_FOR_SERVICES.contains(&origin.as_str()) => continue,
            Some(origin) => origin,
            None => name,
        };
        let is_layer = LAYERS.iter().any(|(known, _)| *known == named);
        let excepted = EDGE_EXCEPTIONS.iter().any(|(of, to, _)| *of == file && *to == named);
        if is_layer && named != layer && !allowed.contains(&named) && !excepted {
            wrong.insert(format!("{file}: `{layer}` must not name `{named}` ({})", path.words.join("::")));
        }
    }
    wrong.into_iter().collect()
}

fn impure_names(file: &str, text: &str) -> Vec<String> {
    if !PURE.contains(&layer_of(file)) || file.ends_with("/tests.rs") {
        return Vec::new();
    }
    let mut wrong = BTreeSet::new();
    for path in paths(&without_tests(&tokens(text))) {
        let impure =
            IMPURE.iter().any(|start| path.words.iter().zip(*start).filter(|(a, b)| a == *b).count() == start.len());
        let name = path.words.join("::");
        let excepted = IMPURE_EXCEPTIONS.iter().any(|(of, what, _)| *of == file && name.starts_with(what));
        if impure && !excepted {
            wrong.insert(format!("{file}: a pure layer must not name `{name}`"));
        }
    }
    wrong.into_iter().collect()
}

fn unsafe_outside_its_files(file: &str, text: &str, listed: &[&str]) -> Vec<String> {
    let tokens = tokens(text);
    let follows = |words: &[&str]| tokens.windows(words.len()).any(|part| part.iter().zip(words).all(|(a, b)| a == b));
    // Some files are unsafe on some processors only: `#![cfg_attr(.., allow(unsafe_code))]`.
    let opened = inner_attributes(&tokens).any(|attribute| {
        attribute.windows(3).any(|part| part[0] == "allow" && part[1] == "(" && part[2] == "unsafe_code")
    });
    let is_listed = listed.contains(&file);
    let mut wrong = Vec::new();
    if tokens.iter().any(|token| token == "unsafe") && !opened {
        wrong.push(format!("{file}: has unsafe code and does not open with #![allow(unsafe_code)]"));
    }
    if follows(&["#", "[", "allow", "(", "unsafe_code"]) {
        wrong.push(format!(
            "{file}: allows unsafe code for an item; move the item to a file that opens with the attribute"
        ));
    }
    if opened && !is_listed {
        wrong.push(format!("{file}: allows unsafe code and is not listed in tests/layers.rs"));
    }
    if !opened && is_listed {
        wrong.push(format!("{file}: is listed for unsafe code and has none; take it off the list"));
    }
    wrong
}

fn too_long(file: &str, text: &str) -> Option<String> {
    let excepted = LENGTH_EXCEPTIONS.iter().find(|(name, ..)| *name == file);
    let most = excepted.map_or(FILE_LINES_MAX, |(_, most, _)| *most);
    let lines = text.lines().count();
    (lines > most).then(|| format!("{file}: has {lines} lines; split it, {most} is the most"))
}

fn undocumented(file: &str, text: &str) -> Option<String> {
    let is_tests = file.ends_with("tests.rs");
    (!is_tests && !text.starts_with("//!")).then(|| format!("{file}: does not open with //! and what it is"))
}

// ---- the tree ----

fn root() -> &'static FilePath {
    FilePath::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files under a folder, by their path from the root of the project.
fn files_under(folder: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                files.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files.sort();
    assert!(!files.is_empty(), "there are Rust files under {folder}");
    files
}

/// The crate `atoll`: `src/` without the macros, which are a crate of their own.
fn sources() -> Vec<(String, String)> {
    files_under("src").into_iter().filter(|(file, _)| !file.starts_with("src/macros/")).collect()
}

fn all_files() -> Vec<(String, String)> {
    ["src", "tests", "examples", "bench-harness"].into_iter().flat_map(files_under).collect()
}

fn none(violations: Vec<String>) {
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn no_layer_names_a_higher_one() {
    let sources = sources();
    let (_, lib) = sources.iter().find(|(file, _)| file == "src/lib.rs").unwrap();
    let exports = root_exports(lib);
    assert_eq!(exports.get("Pod").map(String::as_str), Some("pod"), "the exports of lib.rs are understood");
    let layered = sources.iter().filter(|(file, _)| file != "src/lib.rs");
    none(layered.flat_map(|(file, text)| wrong_edges(file, text, &exports)).collect());
}

#[test]
fn pure_layers_touch_neither_sockets_nor_files_nor_threads_nor_the_clock() {
    none(sources().iter().flat_map(|(file, text)| impure_names(file, text)).collect());
}

#[test]
fn unsafe_code_is_where_it_is_listed() {
    let sources = sources();
    for listed in UNSAFE_FILES {
        assert!(
            sources.iter().any(|(file, _)| file == listed),
            "{listed} is listed for unsafe code and does not exist"
        );
    }
    none(sources.iter().flat_map(|(file, text)| unsafe_outside_its_files(file, text, UNSAFE_FILES)).collect());
}

#[test]
fn files_are_short() {
    none(all_files().iter().filter_map(|(file, text)| too_long(file, text)).collect());
}

#[test]
fn every_module_says_what_it_is() {
    none(
        all_files()
            .iter()
            .filter(|(file, _)| !file.contains("compile_fail/"))
            .filter_map(|(file, text)| undocumented(file, text))
            .collect(),
    );
}

#[test]
fn the_table_of_layers_has_no_cycle() {
    for (position, (layer, allowed)) in LAYERS.iter().enumerate() {
        for named in *allowed {
            let lower = LAYERS[..position].iter().any(|(other, _)| other == named);
            assert!(lower, "`{layer}` may name `{named}`, which is not above it in the table");
        }
    }
}

// ---- planted violations ----

fn edges(file: &str, text: &str) -> usize {
    let exports = root_exports("pub use base::{ClusterError, EntityId};\npub use entity::Entity;\npub use pod::Pod;");
    wrong_edges(file, text, &exports).len()
}

#[test]
fn a_planted_edge_is_found_however_it_is_written() {
    for text in [
        "use crate::engine::Core;",
        "use crate::{base::Nanos, engine::Core};",
        "use crate::{base::{Nanos, PodUid}, engine};",
        "use crate::engine as e;",
        "use super::super::engine;",
        "use super::{super::engine::Core, other};",
        "fn f() { crate::engine::run() }",
        "fn f(core: &atoll::engine::Core) {}",
        "use ::atoll::engine::Core;",
        "use crate::Pod;",
        "mod inner { use super::super::super::engine::Core; }",
        "#[cfg(test)] mod tests { use crate::engine::Core; }",
        "macro_rules! m { () => { $crate::engine::run() } }",
    ] {
        assert_eq!(edges("src/wire/codec.rs", text), 1, "{text}");
    }
    assert_eq!(edges("src/wire/mod.rs", "use super::engine;"), 1);
    assert_eq!(edges("src/runtime/uring/ring.rs", "use super::super::super::wire;"), 1);
    assert_eq!(edges("src/services/echo.rs", "use crate::pod::Pod; use crate::engine::Core;"), 2);
    assert_eq!(edges("src/services/guild.rs", "use crate::entity::Entity;"), 1, "not through the root");
    assert_eq!(edges("src/novel/mod.rs", ""), 1, "a folder that is not in the table");
}

#[test]
fn an_allowed_edge_is_not_reported() {
    for text in [
        "use crate::base::Nanos;",
        "use crate::{ClusterError, EntityId};",
        "// use crate::engine::Core;\n/* crate::engine /* nested */ crate::pod */",
        "//! See [`crate::engine::Core`].",
        "const TEXT: &str = \"use crate::engine::Core; \\\" crate::pod\";",
        "const TEXT: &str = r#\"a \" crate::engine::Core\"#; const SIGN: char = '\"';",
        "fn f<'a>(x: &'a u8) { let engine = '\\''; }",
        "use super::engine::Local;",
        "mod engine { use super::super::codec; }",
        "use other::engine::Core;",
    ] {
        assert_eq!(edges("src/wire/codec.rs", text), 0, "{text}");
    }
    assert_eq!(edges("src/services/guild.rs", "use crate::{Entity, EntityId};"), 0);
    assert_eq!(edges("src/cli/mod.rs", "use crate::pod::Pod;"), 0);
}

#[test]
fn a_planted_impurity_is_found() {
    for text in [
        "use std::net::TcpStream;",
        "use std::{collections::HashMap, fs};",
        "let now = std::time::Instant::now();",
        "use std::time::{Duration, Instant};",
        "use glommio;",
        "::libc::getpid();",
        "tokio::spawn(f());",
        "#[cfg(not(test))] use std::thread;",
        "#[cfg(test)] mod tests {} use std::thread;",
    ] {
        assert_eq!(impure_names("src/engine/core.rs", text).len(), 1, "{text}");
        assert_eq!(impure_names("src/runtime/pump.rs", text).len(), 0, "{text}");
    }
    for text in [
        "use std::time::Duration;",
        "#[cfg(test)] mod tests { use std::thread; }",
        "#[cfg(all(test, not(loom)))] #[allow(dead_code)] mod tests { fn f() { std::thread::spawn(g); } }",
        "#[cfg(test)] use std::thread;",
        "fn f(tokio: u8) -> u8 { tokio }",
        "thread.net.fs",
    ] {
        assert_eq!(impure_names("src/engine/core.rs", text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn planted_unsafe_code_is_found() {
    let listed = ["src/a.rs"];
    let wrong = |file: &str, text: &str| unsafe_outside_its_files(file, text, &listed).len();
    assert_eq!(wrong("src/a.rs", "#![allow(unsafe_code)] unsafe {}"), 0);
    assert_eq!(wrong("src/a.rs", "#![cfg_attr(unix, allow(unsafe_code))] unsafe {}"), 0);
    assert_eq!(wrong("src/b.rs", "// unsafe\nfn f() {}"), 0);
    assert_eq!(wrong("src/b.rs", "#![allow(unsafe_code)] unsafe {}"), 1);
    assert_eq!(wrong("src/b.rs", "unsafe {}"), 1);
    assert_eq!(wrong("src/b.rs", "#[allow(unsafe_code)] fn f() {}"), 1);
    assert_eq!(wrong("src/a.rs", "fn f() {}"), 1);
}

#[test]
fn planted_length_and_silence_are_found() {
    assert!(too_long("src/a.rs", &"\n".repeat(FILE_LINES_MAX)).is_none());
    assert!(too_long("src/a.rs", &"\n".repeat(FILE_LINES_MAX + 1)).is_some());
    assert!(undocumented("src/a.rs", "use std::fmt;").is_some());
    assert!(undocumented("src/a.rs", "//! What it is.").is_none());
}

#[test]
fn modules_are_as_deep_as_their_folders() {
    for (file, depth) in
        [("src/main.rs", 1), ("src/wire/mod.rs", 1), ("src/wire/codec.rs", 2), ("src/pod/config/keys.rs", 3)]
    {
        assert_eq!(module_depth(file), depth, "{file}");
    }
}
