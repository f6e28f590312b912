//! The entity that the tests talk to. What it does is written to a log that the test reads; what it waits for is fired
//! by the test. Both belong to the thread, so tests do not see each other's.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use atoll::{ClusterError, Entity, EntityId, EntityOptions, Scope, SendError, StartError, StopReason};

use crate::host::{Core, Signal};

/// What the entity declares.
#[derive(atoll::Wire, Debug, Clone, PartialEq)]
pub struct Refused {
    pub reason: String,
}

#[atoll::protocol]
pub trait Probe {
    async fn add(&mut self, value: u32) -> u32;
    fn plain(&mut self, value: u32) -> u32;
    async fn refuse(&mut self, reason: String) -> Result<u32, Refused>;
    async fn write(&mut self, name: String);
    async fn read(&self, name: String);
    #[concurrent]
    async fn glance(&self, name: String);
    #[uninterruptible]
    async fn finish(&mut self, name: String);
    #[concurrent]
    async fn defect_beside(&self, name: String);
    async fn defect(&mut self, name: String) -> u32;
    fn defect_plain(&mut self) -> u32;
    async fn defect_eagerly(&mut self) -> u32;
    async fn stop_yourself(&mut self);
    async fn token(&self) -> u64;
    async fn nap(&mut self, milliseconds: u64);
    async fn pass_on(&mut self, path: Vec<String>) -> Result<u32, Refused>;
    async fn pass_on_reading(&self, path: Vec<String>) -> Result<u32, Refused>;
    #[concurrent]
    async fn pass_on_beside(&self, path: Vec<String>) -> Result<u32, Refused>;
    async fn update_later(&self, name: String);
    #[concurrent]
    async fn sum(&self) -> u32;
}

/// How the next instances start and stop.
#[derive(Default)]
pub struct World {
    log: Vec<String>,
    signals: HashMap<String, Signal>,
    pub start_fails: bool,
    pub start_panics: bool,
    pub start_waits_for: Option<String>,
    pub start_asks: Option<String>,
    pub second_start_asks: Option<String>,
    pub stop_waits_for: Option<String>,
    pub core: Option<std::rc::Weak<atoll::entity::Host>>,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
}

/// Changes how instances behave.
pub fn world<R>(with: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with_borrow_mut(with)
}

/// Adds a line.
pub fn log(line: impl Into<String>) {
    world(|world| world.log.push(line.into()));
}

/// The lines since the last call.
pub fn lines() -> Vec<String> {
    world(|world| std::mem::take(&mut world.log))
}

/// The signal of a name.
pub fn signal(name: &str) -> Signal {
    world(|world| world.signals.entry(name.to_owned()).or_default().clone())
}

/// Logs `~name` if it is dropped before its end.
struct Progress(Option<String>);

impl Progress {
    fn begin(name: &str) -> Progress {
        log(format!("+{name}"));
        Progress(Some(name.to_owned()))
    }

    fn end(mut self) {
        if let Some(name) = self.0.take() {
            log(format!("-{name}"));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(name) = &self.0 {
            log(format!("~{name}"));
        }
    }
}

async fn work(name: &str) {
    let progress = Progress::begin(name);
    signal(name).fired().await;
    progress.end();
}

pub struct ProbeEntity {
    sum: u32,
    scope: Scope<Self>,
}

impl Drop for ProbeEntity {
    fn drop(&mut self) {
        log("dropped");
    }
}

impl Entity for ProbeEntity {
    type Protocol = ProbeProtocol;

    async fn start(id: &EntityId, scope: Scope<Self>) -> Result<Self, StartError> {
        log(format!("start {id}"));
        scope.on_close(|| log("closed 1"))?;
        scope.on_close(|| log("closed 2"))?;
        if let Some(name) = world(|world| world.start_waits_for.clone()) {
            signal(&name).fired().await;
        }
        if let Some(below) =
            id.as_str().strip_prefix("depth ").and_then(|depth| depth.parse::<u32>().ok()?.checked_sub(1))
        {
            scope.messenger::<ProbeRef>()?.entity(&format!("depth {below}")).add(1).await?;
        }
        if let Some(other) = world(|world| std::mem::replace(&mut world.start_asks, world.second_start_asks.take())) {
            let outcome = scope.messenger::<ProbeRef>()?.entity(&other).add(1).await;
            log(format!("start got {outcome:?}"));
        }
        assert!(!world(|world| world.start_panics), "a start that panics (a test wants it)");
        if world(|world| world.start_fails) {
            return Err(StartError::new("the test wants it"));
        }
        Ok(ProbeEntity { sum: 0, scope })
    }

    async fn stop(&mut self, reason: StopReason) {
        log(format!("stop {reason:?}"));
        if let Some(name) = world(|world| world.stop_waits_for.clone()) {
            signal(&name).fired().await;
        }
    }
}

impl ProbeEntity {
    async fn ask_along(&self, mut path: Vec<String>) -> Result<u32, Refused> {
        if path.is_empty() {
            return Ok(0);
        }
        let how = path.remove(0);
        let next = path.remove(0);
        let to = self.scope.messenger::<ProbeRef>().expect("it lives").entity(&next);
        let outcome = match how.as_str() {
            "write" => to.pass_on(path).await,
            "read" => to.pass_on_reading(path).await,
            "beside" => to.pass_on_beside(path).await,
            other => panic!("no such way: {other}"),
        };
        outcome.map(|depth| depth + 1).map_err(|error| match error {
            SendError::Declared(refused) => refused,
            SendError::Cluster(error) => Refused { reason: format!("{error:?}") },
        })
    }
}

impl Probe for ProbeEntity {
    async fn add(&mut self, value: u32) -> u32 {
        self.sum += value;
        self.sum
    }

    fn plain(&mut self, value: u32) -> u32 {
        self.sum += value;
        self.sum
    }

    async fn refuse(&mut self, reason: String) -> Result<u32, Refused> {
        Err(Refused { reason })
    }

    async fn write(&mut self, name: String) {
        work(&name).await;
        self.sum += 1;
    }

    async fn read(&self, name: String) {
        work(&name).await;
    }

    async fn glance(&self, name: String) {
        work(&name).await;
    }

    async fn finish(&mut self, name: String) {
        work(&name).await;
        self.sum += 1;
    }

    async fn defect_beside(&self, name: String) {
        work(&name).await;
        panic!("a handler that panics (a test wants it)");
    }

    async fn defect(&mut self, name: String) -> u32 {
        work(&name).await;
        panic!("a handler that panics (a test wants it)");
    }

    fn defect_plain(&mut self) -> u32 {
        panic!("a handler that panics (a test wants it)");
    }

    // The trait says `async fn`; what the entity writes may do something before it returns its future.
    #[allow(clippy::manual_async_fn, unreachable_code)]
    fn defect_eagerly(&mut self) -> impl Future<Output = u32> {
        panic!("a handler that panics (a test wants it)");
        async { 0 }
    }

    async fn stop_yourself(&mut self) {
        self.scope.stop().expect("it lives");
    }

    async fn token(&self) -> u64 {
        self.scope.fence().expect("it lives").0
    }

    async fn nap(&mut self, milliseconds: u64) {
        self.scope.sleep(Duration::from_millis(milliseconds)).await;
    }

    async fn pass_on(&mut self, path: Vec<String>) -> Result<u32, Refused> {
        self.ask_along(path).await
    }

    async fn pass_on_reading(&self, path: Vec<String>) -> Result<u32, Refused> {
        self.ask_along(path).await
    }

    async fn pass_on_beside(&self, path: Vec<String>) -> Result<u32, Refused> {
        self.ask_along(path).await
    }

    async fn update_later(&self, name: String) {
        let scope = self.scope;
        let task = async move {
            signal(&name).fired().await;
            let updated = scope
                .update(|state| {
                    state.sum += 100;
                    state.sum
                })
                .await;
            log(format!("updated {updated:?}"));
        };
        let host = world(|world| world.core.as_ref().and_then(std::rc::Weak::upgrade)).expect("the test said so");
        host.spawn(task);
    }

    async fn sum(&self) -> u32 {
        self.sum
    }
}

/// A core with probes.
pub fn core(options: EntityOptions<ProbeProtocol>) -> Core {
    let core = Core::new().with::<ProbeEntity>(options).ready();
    world(|world| world.core = Some(core.weak()));
    core
}

/// A core with probes that behave as they do by default.
pub fn plain_core() -> Core {
    core(EntityOptions::default())
}

/// The probe of a core that most tests talk to.
pub fn probe(core: &Core) -> ProbeRef {
    core.entity("p")
}

/// The error of a message that declares none.
pub fn cluster<T: std::fmt::Debug, E: std::fmt::Debug>(outcome: Option<Result<T, SendError<E>>>) -> ClusterError {
    match outcome {
        Some(Err(SendError::Cluster(error))) => error,
        other => panic!("{other:?} is no failure in the cluster"),
    }
}
