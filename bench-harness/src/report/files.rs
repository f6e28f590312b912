//! The files that a run leaves: `--json`, `--hgrm` and `--html`. [`Files::prepare`] finds out before the measurement
//! whether they can be written, since a run takes minutes.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::Serialize;

use super::hgrm;
use super::html::Page;
use crate::arguments::Common;
use crate::measure::Latencies;

/// Where the results go.
#[derive(Clone, Debug, Default)]
pub struct Files {
    json: Option<PathBuf>,
    hgrm: Option<PathBuf>,
    html: Option<PathBuf>,
}

/// Latencies that get a file of their own.
#[derive(Clone, Debug)]
pub struct Distribution<'a> {
    /// Names the file.
    pub name: String,
    /// What was measured, for the comment in the file.
    pub title: String,
    /// The latencies.
    pub latencies: &'a Latencies,
    /// Title and latencies of the floor beside it.
    pub floor: Option<(String, &'a Latencies)>,
}

impl Files {
    /// As the command line names them.
    pub fn of(common: &Common) -> Self {
        Self { json: common.json.clone(), hgrm: common.hgrm.clone(), html: common.html.clone() }
    }

    /// Makes the folders that are missing.
    ///
    /// # Errors
    /// If a file cannot be there, or if distributions are wanted (`--hgrm`) of what has none.
    pub fn prepare(&self, has_distributions: bool) -> anyhow::Result<()> {
        ensure!(
            has_distributions || self.hgrm.is_none(),
            "there are no latencies here that --hgrm could write; leave it out, or use --json"
        );
        for (flag, file) in [("--json", &self.json), ("--html", &self.html)] {
            let Some(file) = file else { continue };
            ensure!(!file.is_dir(), "{flag} {} is a folder; name a file in it", file.display());
            make_parent(file)?;
            // Not truncated: what an earlier run left is worth more than nothing if this one fails.
            let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
            opened.with_context(|| format!("{flag}: cannot write {}", file.display()))?;
        }
        self.hgrm.as_deref().map_or(Ok(()), make_parent)
    }

    /// Fails if a page or distributions are wanted of a command that makes none.
    pub fn only_json(&self) -> anyhow::Result<()> {
        match (&self.html, &self.hgrm) {
            (Some(_), _) => bail!("--html is for measurements; this command makes no page"),
            (_, Some(_)) => bail!("--hgrm is for measurements; this command has no latencies"),
            _ => self.prepare(true),
        }
    }

    /// Writes the JSON object if it is wanted.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_json(&self, json: &impl Serialize) -> anyhow::Result<()> {
        match &self.json {
            Some(path) => write(path, &(serde_json::to_string_pretty(json)? + "\n")),
            None => Ok(()),
        }
    }

    /// Writes those that are wanted.
    ///
    /// # Errors
    /// If one cannot be written.
    pub fn write(
        &self,
        json: &impl Serialize,
        distributions: &[Distribution<'_>],
        page: impl FnOnce() -> Page,
    ) -> anyhow::Result<()> {
        self.write_json(json)?;
        if let Some(path) = &self.hgrm {
            write_distributions(path, distributions)?;
        }
        self.html.as_ref().map_or(Ok(()), |path| write(path, &page().render()))
    }
}

fn write_distributions(path: &Path, distributions: &[Distribution<'_>]) -> anyhow::Result<()> {
    let is_folder = distributions.len() > 1 || path.is_dir() || names_folder(path);
    if is_folder {
        std::fs::create_dir_all(path)
            .with_context(|| format!("--hgrm {}: several distributions need a folder", path.display()))?;
    }
    for Distribution { name, title, latencies, floor } in distributions {
        let file = if is_folder { path.join(format!("{}.hgrm", file_name(name))) } else { path.to_owned() };
        if latencies.count() == 0 {
            eprintln!("{name}: no latencies were measured, so there is no {}", file.display());
            continue;
        }
        write(&file, &hgrm::text(title, latencies))?;
        if let Some((title, latencies)) = floor.as_ref().filter(|(_, latencies)| latencies.count() > 0) {
            write(&file.with_extension("floor.hgrm"), &hgrm::text(title, latencies))?;
        }
    }
    Ok(())
}

/// Whether a path ends with a slash.
fn names_folder(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// A name without what a shell or a file system takes amiss.
fn file_name(name: &str) -> String {
    let words = name.split(|character: char| !character.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

fn make_parent(file: &Path) -> anyhow::Result<()> {
    match file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => {
            std::fs::create_dir_all(parent).with_context(|| format!("cannot make the folder {}", parent.display()))
        }
        None => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("atoll-bench-files-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn recorded() -> Latencies {
        let mut latencies = Latencies::new();
        latencies.record(100);
        latencies
    }

    fn distribution<'a>(name: &str, latencies: &'a Latencies) -> Distribution<'a> {
        Distribution {
            name: name.to_owned(),
            title: name.to_owned(),
            latencies,
            floor: Some(("floor".to_owned(), latencies)),
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn one_distribution_is_a_file_with_its_floor_beside_it() {
        let folder = folder("one");
        write_distributions(&folder.join("ask.hgrm"), &[distribution("ask-local-1", &recorded())]).unwrap();
        assert_eq!(names(&folder), ["ask.floor.hgrm", "ask.hgrm"]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn several_are_a_folder_and_an_empty_one_has_no_file() {
        let (folder, latencies, empty) = (folder("several"), recorded(), Latencies::new());
        let all = [
            distribution("ask-local-1", &latencies),
            distribution("bare ring, 100+40 B", &latencies),
            distribution("tell", &empty),
        ];
        write_distributions(&folder.join("out"), &all).unwrap();
        let expected =
            ["ask-local-1.floor.hgrm", "ask-local-1.hgrm", "bare-ring-100-40-b.floor.hgrm", "bare-ring-100-40-b.hgrm"];
        assert_eq!(names(&folder.join("out")), expected);
        // A slash at the end makes a folder of a single one, too.
        write_distributions(&folder.join("slash/"), &all[..1]).unwrap();
        assert_eq!(names(&folder.join("slash")), expected[..2]);
        std::fs::write(folder.join("file"), "").unwrap();
        let error = format!("{:#}", write_distributions(&folder.join("file"), &all).unwrap_err());
        assert!(error.contains("need a folder"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_cannot_be_written_is_told_before_the_measurement() {
        let folder = folder("before");
        std::fs::write(folder.join("file"), "").unwrap();
        let files = |json: &str, hgrm: Option<&str>| Files {
            json: Some(folder.join(json)),
            hgrm: hgrm.map(|hgrm| folder.join(hgrm)),
            html: None,
        };
        assert!(files("new/folder/a.json", Some("new/other/")).prepare(true).is_ok());
        assert!(folder.join("new/folder").is_dir());
        for (files, has_distributions, advice) in [
            (files("file/a.json", None), true, "cannot make the folder"),
            (files("new", None), true, "name a file"),
            (files(&"long".repeat(100), None), true, "cannot write"),
            (files("a.json", Some("a.hgrm")), false, "leave it out"),
        ] {
            let error = format!("{:#}", files.prepare(has_distributions).unwrap_err());
            assert!(error.contains(advice), "{error}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
