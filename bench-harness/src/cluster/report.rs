//! The figures of a cluster run: a table, and one JSON object.

use core::time::Duration;
use std::collections::BTreeMap;

use serde::Serialize;

use super::load::{Asked, Books};
use super::moves::moves;
use super::{Event, Kind};
use crate::arguments::ClusterArguments;
use crate::measure::{Latencies, Percentiles};
use crate::report::html::{Curve, Dot, Page, Role, Section, Strip};
use crate::report::{Distribution, Machine, Provenance, ReportKind, Row, table};

/// Longest time that a message in flight may wait for a planned move.
const MOVE_P99_MS_MAX: f64 = 50.0;
/// What a failover may take beyond the time to live of the lease.
const FAILOVER_MORE: Duration = Duration::from_secs(1);

/// What a run counted besides its asks.
pub(super) struct Counted {
    pub elapsed: Duration,
    pub stops: u32,
    pub kills: u32,
    pub events: Vec<Event>,
    pub failovers: Vec<Duration>,
    pub books: Books,
    pub stale_rejections: u64,
    pub resends: u64,
}

/// The result of `atoll-bench cluster`.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterReport {
    /// Where the file comes from.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// Longest wait of 99 % of the messages that were in flight over a planned move, from when they were due; `null`
    /// if there was none.
    pub move_p99_ms: Option<f64>,
    /// Its median.
    pub move_p50_ms: Option<f64>,
    /// Its maximum.
    pub move_max_ms: Option<f64>,
    /// Changes of owner by clean stops and joins.
    pub planned_moves: u64,
    /// Messages that were in flight over one of them.
    pub in_flight_messages: u64,
    /// Longest time from the loss of a pod until an entity of each shard had answered.
    pub failover_ms: Option<f64>,
    /// Each of these times.
    pub failovers_ms: Vec<f64>,
    /// Messages that their sender sent again.
    pub resends: u64,
    /// Writes of former owners that the state store refused.
    pub stale_rejections: u64,
    /// Deposits whose reply arrived and which are not stored.
    pub lost: u64,
    /// Applications of a deposit after its first; its id made them harmless.
    pub repeated: u64,
    /// Accounts whose balance is not the sum of their deposits.
    pub wrong_balances: u64,
    /// Replies of an owner to messages that were due after a later owner had answered.
    pub replies_of_old_owners: u64,
    /// Asks that failed, by error.
    pub failed: BTreeMap<String, u64>,
    /// Of these, the ones due while pods stopped cleanly and joined.
    pub failed_in_planned_moves: u64,
    /// All asks.
    pub asks: u64,
    /// Of these, deposits.
    pub deposits: u64,
    /// Asks per second, by the schedule.
    pub rate_per_second: f64,
    /// Median and more of the asks that no move touched, in nanoseconds.
    pub undisturbed_ns: Percentiles,
    /// Time to live of the leases.
    pub ttl_ms: u64,
    /// Clean stops, each with a join.
    pub stops: u32,
    /// Kills, each with a restart.
    pub kills: u32,
    /// Time under load.
    pub seconds: f64,
    /// Whether all targets were met.
    pub targets_met: bool,
    /// Where it ran.
    pub machine: Machine,
    /// The asks that no move touched.
    #[serde(skip)]
    pub undisturbed: Latencies,
    /// The messages that were in flight over a planned move.
    #[serde(skip)]
    pub in_flight: Latencies,
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

impl ClusterReport {
    pub(super) fn new(arguments: &ClusterArguments, asked: Asked, counted: &Counted) -> ClusterReport {
        let asks = (asked.seen.len() + asked.deposits.len()) as u64 + asked.failed.len() as u64
            - asked.deposits.iter().filter(|deposit| !deposit.acknowledged).count() as u64;
        let planned = |at| {
            counted.events.iter().any(|event| event.kind == Kind::Planned && (event.from..=event.to).contains(&at))
        };
        let calm = |at| !counted.events.iter().any(|event| (event.from..=event.to).contains(&at));
        let mut undisturbed = Latencies::new();
        for seen in asked.seen.iter().filter(|seen| calm(seen.due)) {
            undisturbed.record((seen.replied - seen.due).as_nanos() as u64);
        }
        let mut failed = BTreeMap::new();
        for (_, error) in &asked.failed {
            *failed.entry(error.clone()).or_insert(0) += 1;
        }
        let failed_in_planned_moves = asked.failed.iter().filter(|(due, _)| planned(*due)).count() as u64;
        let deposits = asked.deposits.len() as u64;
        let (all_moves, replies_of_old_owners) = moves(asked.seen);
        let planned_moves: Vec<_> = all_moves.iter().filter(|moved| planned(moved.served)).collect();
        let mut in_flight: Vec<Duration> = planned_moves.iter().flat_map(|moved| moved.in_flight.clone()).collect();
        in_flight.sort();
        let at = |quantile: f64| {
            let position = (in_flight.len() as f64 * quantile).ceil() as usize;
            in_flight.get(position.max(1) - 1).map(|duration| milliseconds(*duration))
        };
        let mut in_flight_latencies = Latencies::new();
        in_flight.iter().for_each(|duration| in_flight_latencies.record(duration.as_nanos() as u64));
        let longest_failover = counted.failovers.iter().max();
        let mut report = ClusterReport {
            provenance: Provenance::here(ReportKind::Cluster),
            move_p99_ms: at(0.99),
            move_p50_ms: at(0.5),
            move_max_ms: at(1.0),
            planned_moves: planned_moves.len() as u64,
            in_flight_messages: in_flight.len() as u64,
            failover_ms: longest_failover.map(|longest| milliseconds(*longest)),
            failovers_ms: counted.failovers.iter().map(|failover| milliseconds(*failover)).collect(),
            resends: counted.resends,
            stale_rejections: counted.stale_rejections,
            lost: counted.books.lost,
            repeated: counted.books.repeated,
            wrong_balances: counted.books.wrong_balances,
            replies_of_old_owners,
            failed,
            failed_in_planned_moves,
            asks,
            deposits,
            rate_per_second: arguments.rate,
            undisturbed_ns: undisturbed.percentiles(),
            ttl_ms: arguments.ttl.as_millis() as u64,
            stops: counted.stops,
            kills: counted.kills,
            seconds: counted.elapsed.as_secs_f64(),
            targets_met: false,
            machine: Machine::read(),
            undisturbed,
            in_flight: in_flight_latencies,
        };
        report.targets_met = report.rows().iter().all(|(.., met)| met.unwrap_or(true));
        report
    }

    /// Name, figure, target, whether it is met.
    fn rows(&self) -> Vec<(String, String, String, Option<bool>)> {
        let ms = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.1} ms"));
        let failover_max = Duration::from_millis(self.ttl_ms) + FAILOVER_MORE;
        let failover_max_ms = milliseconds(failover_max);
        let none = |value: u64| Some(value == 0);
        let row = |name: &str, figure: String, target: &str, met| (name.to_owned(), figure, target.to_owned(), met);
        vec![
            row(
                "message in flight over a planned move, p99",
                ms(self.move_p99_ms),
                &format!("≤ {MOVE_P99_MS_MAX} ms"),
                self.move_p99_ms.map(|value| value <= MOVE_P99_MS_MAX),
            ),
            row("the same, p50 and longest", format!("{}, {}", ms(self.move_p50_ms), ms(self.move_max_ms)), "", None),
            row(
                "planned moves, messages in flight over them",
                format!("{}, {}", self.planned_moves, self.in_flight_messages),
                "",
                None,
            ),
            row(
                "failover after a loss, longest",
                ms(self.failover_ms),
                &format!("≤ {failover_max_ms:.0} ms"),
                self.failover_ms.map(|value| value <= failover_max_ms),
            ),
            row("messages sent again", self.resends.to_string(), "", None),
            row("stale writes refused", self.stale_rejections.to_string(), "> 0", Some(self.stale_rejections > 0)),
            row("deposits answered and lost", self.lost.to_string(), "0", none(self.lost)),
            row("deposits applied again, without effect", self.repeated.to_string(), "", None),
            row(
                "balances that are no sum of deposits",
                self.wrong_balances.to_string(),
                "0",
                none(self.wrong_balances),
            ),
            row("replies of old owners", self.replies_of_old_owners.to_string(), "0", none(self.replies_of_old_owners)),
            row(
                "asks failed in planned moves",
                self.failed_in_planned_moves.to_string(),
                "0",
                none(self.failed_in_planned_moves),
            ),
            row("asks, and failed", format!("{}, {}", self.asks, self.failed.values().sum::<u64>()), "", None),
        ]
    }

    const COLUMNS: [&str; 4] = ["three pods under open load", "figure", "target", ""];

    fn cells(&self) -> Vec<Row> {
        let cells = |(name, figure, target, met): (String, String, String, Option<bool>)| {
            let met = met.map_or("", |met| if met { "met" } else { "MISSED" });
            Row { cells: vec![name, figure, target, met.to_owned()] }
        };
        self.rows().into_iter().map(cells).collect()
    }

    /// What a reader has to know besides the table.
    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.failed.iter().map(|(error, count)| format!("{count} × {error}")).collect();
        notes.push(format!(
            "{} stops and joins, {} kills, 1 pause, 1 kill of the manager; {:.0} asks per second for {:.1} s; leases of {} ms",
            self.stops, self.kills, self.rate_per_second, self.seconds, self.ttl_ms
        ));
        notes
    }

    /// The table for the terminal.
    pub fn table(&self) -> String {
        let mut text = table(&Self::COLUMNS, &self.cells());
        for note in self.notes() {
            text += &note;
            text.push('\n');
        }
        text
    }

    /// The latencies of the run, for `--hgrm`; those of moves are in the page.
    pub fn distributions(&self) -> Vec<Distribution<'_>> {
        vec![Distribution {
            name: "cluster".to_owned(),
            title: "asks that no move touched, one run".to_owned(),
            latencies: &self.undisturbed,
            floor: None,
        }]
    }

    /// The page of this run.
    pub fn page(&self) -> Page {
        let mut curve = Curve::default();
        curve.line("asks that no move touched", Role::Subject, &self.undisturbed);
        curve.line("asks in flight over a planned move", Role::Floor, &self.in_flight);
        let dot = |ms: &f64| Dot { subject_ns: Some(ms * 1e6), floor_ns: None, disturbed: false, repeats: 0 };
        let failovers = Strip {
            figure: "time of a failover",
            subject: "until an entity of each shard had answered".to_owned(),
            floor: String::new(),
            dots: self.failovers_ms.iter().map(dot).collect(),
        };
        let asks = Section {
            name: "Asks".to_owned(),
            lead: "Latency from the time at which an ask was due.".to_owned(),
            curve,
            ..Section::default()
        };
        let losses = Section {
            name: "Losses of a pod".to_owned(),
            lead: "From the loss of a pod until an entity of each shard had answered.".to_owned(),
            strip: failovers,
            ..Section::default()
        };
        Page {
            title: "Load test: three pods, killed, stopped and paused".to_owned(),
            provenance: self.provenance.clone(),
            machine: self.machine.clone(),
            facts: Vec::new(),
            columns: Self::COLUMNS.to_vec(),
            rows: self.cells(),
            notes: self.notes(),
            bars: Vec::new(),
            sections: vec![asks, losses],
        }
    }
}
