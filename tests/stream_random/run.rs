//! Runs a case and judges it.

use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll::base::Nanos;
use atoll::stream::error::AbruptTermination;
use atoll::stream::host::{HostInbox, StreamHost};

use super::build::runnable;
use super::generate::Random;
use super::graph::{Case, Disturbance};
use super::reference::{Expected, expected};
use super::stages::{Failure, Record, Tally, tally};

/// Turns after which a stream is taken to hang: many times what the longest case takes.
const TURNS_MAX: u64 = 1_000_000;

fn hosts(case: &Case) -> Vec<Rc<StreamHost>> {
    let inboxes: Vec<Arc<HostInbox>> = (0..case.hosts).map(|_| HostInbox::new()).collect();
    let host = |core: usize| {
        let host = StreamHost::new(Arc::clone(&inboxes[core]));
        host.set_cores(core as u16, inboxes.clone());
        host.set_events_per_run(case.events);
        host
    };
    (0..inboxes.len()).map(host).collect()
}

fn disturb(case: &Case, turn: u64, hosts: &[Rc<StreamHost>], record: &Mutex<Record>) {
    match case.disturbance {
        Disturbance::CancelAt(at) if at == turn => {
            let waker = {
                let mut record = record.lock().unwrap();
                record.cancel = true;
                record.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        Disturbance::Abort { turn: at, hosts: which } if at == turn => {
            let aborted = hosts.iter().enumerate().filter(|(core, _)| which & (1 << core) != 0 || hosts.len() == 1);
            aborted.for_each(|(_, host)| host.abort());
        }
        _ => {}
    }
}

/// Runs hosts in random turns until none has anything to do.
fn drive(case: &Case, hosts: &[Rc<StreamHost>], record: &Mutex<Record>) -> Result<(), String> {
    let mut random = Random::new(case.seed ^ 0x5eed);
    let mut now = Nanos(1);
    for turn in 0..TURNS_MAX {
        disturb(case, turn, hosts, record);
        // Time passes, or sides of boundaries look for each other for thousands of turns.
        now = now + Duration::from_micros([0, 1, 30][random.below(3) as usize]);
        let host = &hosts[random.below(hosts.len() as u64) as usize];
        host.take_events(now);
        host.run_one(now);
        let disturbed = match case.disturbance {
            Disturbance::CancelAt(at) | Disturbance::Abort { turn: at, .. } => turn >= at,
            _ => true,
        };
        if disturbed && !hosts.iter().any(|host| host.has_work()) {
            return Ok(());
        }
    }
    Err("it does not come to rest".to_owned())
}

/// The complaint about a case, if there is one.
pub fn judge(case: &Case) -> Result<(), String> {
    let hosts = hosts(case);
    let (graph, record) = runnable(case);
    graph.run_on(&hosts[0]).map_err(|error| error.to_string())?;
    drive(case, &hosts, &record)?;
    let islands: usize = hosts.iter().map(|host| host.islands()).sum();
    if islands > 0 {
        return Err(format!("nothing is left to do, but {islands} islands run; {:?}", outcome(&record)));
    }
    let outcome = outcome(&record);
    drop((graph, hosts, record));
    judge_output(case, &outcome)?;
    let Tally { elements, created, stopped, dropped } = tally();
    if elements != 0 {
        return Err(format!("{elements} elements are left"));
    }
    if (stopped, dropped) != (created, created) {
        return Err(format!("{created} stages were created, {stopped} stopped, {dropped} dropped"));
    }
    Ok(())
}

#[derive(Debug)]
enum End {
    None,
    Completed,
    Failed(u32),
    Abrupt,
    #[expect(dead_code, reason = "for the complaint")]
    Other(String),
}

type Outcome = (Vec<u64>, End);

fn outcome(record: &Mutex<Record>) -> Outcome {
    let mut record = record.lock().unwrap();
    let end = match &record.end {
        None => End::None,
        Some(Ok(())) => End::Completed,
        Some(Err(error)) => match error.downcast_ref::<Failure>() {
            Some(failure) => End::Failed(failure.0),
            None if error.downcast_ref::<AbruptTermination>().is_some() => End::Abrupt,
            None => End::Other(error.to_string()),
        },
    };
    (std::mem::take(&mut record.output), end)
}

fn judge_output(case: &Case, (output, end): &Outcome) -> Result<(), String> {
    let expected: Expected = expected(&case.node);
    let is_all = matches!(end, End::Completed);
    if let Some(complaint) = expected.objects(output, is_all) {
        return Err(format!("{complaint}; {end:?} after {output:?}, expected {expected:?}"));
    }
    let fits = match end {
        End::Completed => expected.completes,
        End::Failed(failure) => expected.failures.contains(failure),
        // The sink was stopped, or ended the stream by itself.
        End::None => match case.disturbance {
            Disturbance::Nothing => false,
            Disturbance::TakeThenCancel(count) => output.len() == count,
            Disturbance::SinkPanics(at) => output.len() == at + 1,
            Disturbance::CancelAt(_) | Disturbance::Abort { .. } => true,
        },
        End::Abrupt => matches!(case.disturbance, Disturbance::Abort { .. }),
        End::Other(_) => false,
    };
    if fits { Ok(()) } else { Err(format!("{end:?} after {output:?}, expected {expected:?}")) }
}
