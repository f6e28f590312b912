//! Sources and flows with a resource that is opened when they start and closed when they end.
//!
//! It is closed exactly once however the stream ends, and before the end is announced. A resource that waits for the
//! outside blocks the core: use it for what is always ready, such as memory or buffered data.

use crate::stream::attributes::{Directive, Supervision};
use crate::stream::dsl::Source;
use crate::stream::error::{Cancellation, StreamError};
use crate::stream::interpreter::{Context, Outlet};
use crate::stream::stage::made::stage;
use crate::stream::stage::supervised::attempt;
use crate::stream::stage::{Logic, Setup, SourceShape};

/// Failures in a row that are dropped before other stages have their turn.
const RETRIES_PER_PULL: u32 = 64;

#[derive(Clone)]
struct Functions<C, F, D> {
    create: C,
    read: F,
    close: D,
}

struct UnfoldResource<T, R, C, F, D> {
    outlet: Outlet<T>,
    resource: Option<R>,
    functions: Functions<C, F, D>,
    supervision: Supervision,
}

impl<T, R, C, F, D> UnfoldResource<T, R, C, F, D>
where
    T: 'static,
    C: FnMut() -> Result<R, StreamError>,
    F: FnMut(&mut R) -> Result<Option<T>, StreamError>,
    D: FnMut(R) -> Result<(), StreamError>,
{
    fn open(&mut self) -> Result<(), StreamError> {
        self.resource = Some((self.functions.create)()?);
        Ok(())
    }

    fn close(&mut self) -> Result<(), StreamError> {
        // Out of its place first: it is not closed again if closing panics.
        self.resource.take().map_or(Ok(()), |resource| (self.functions.close)(resource))
    }

    fn read(&mut self, context: &mut Context) -> Result<(), StreamError> {
        for _ in 0..RETRIES_PER_PULL {
            let Some(resource) = &mut self.resource else { return Ok(()) };
            let read = &mut self.functions.read;
            match attempt(&self.supervision, || read(resource)) {
                Ok(Some(element)) => {
                    self.outlet.push(context, element);
                    return Ok(());
                }
                Ok(None) => {
                    self.close()?;
                    self.outlet.complete(context);
                    return Ok(());
                }
                Err((Directive::Stop, error)) => {
                    // The failure of reading is the one that counts.
                    let _ = self.close();
                    return Err(error);
                }
                Err((Directive::Resume, _)) => {}
                Err((Directive::Restart, _)) => {
                    self.close()?;
                    self.open()?;
                }
            }
        }
        context.look_again();
        Ok(())
    }
}

impl<T, R, C, F, D> Logic for UnfoldResource<T, R, C, F, D>
where
    T: 'static,
    R: 'static,
    C: FnMut() -> Result<R, StreamError> + 'static,
    F: FnMut(&mut R) -> Result<Option<T>, StreamError> + 'static,
    D: FnMut(R) -> Result<(), StreamError> + 'static,
{
    fn pre_start(&mut self, context: &mut Context) {
        if let Err(error) = self.open() {
            context.fail_and_log(error);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if let Err(error) = self.read(context) {
            context.fail_and_log(error);
        }
    }

    fn on_look(&mut self, context: &mut Context) {
        if self.outlet.is_available(context) {
            self.on_pull(context, 0);
        }
    }

    fn on_downstream_finish(&mut self, context: &mut Context, _: usize, cause: Cancellation) {
        match self.close() {
            Ok(()) => context.cancel_stage(cause),
            Err(error) => context.fail_and_log(error),
        }
    }

    fn post_stop(&mut self, context: &mut Context) {
        if let Err(error) = self.close() {
            context.log_failure(context.current, &error);
        }
    }
}

impl<T: 'static> Source<T> {
    /// Opens a resource when the stream starts, emits what is read from it until that is nothing, and closes it. It is
    /// also closed, exactly once, if the stream fails, is cancelled or is stopped.
    ///
    /// A failure or panic while reading is what the supervision decider says: stop, go on reading, or close the resource
    /// and open a new one. Opening and closing fail the stream.
    pub fn unfold_resource<R, C, F, D>(create: C, read: F, close: D) -> Source<T>
    where
        R: 'static,
        C: FnMut() -> Result<R, StreamError> + Clone + Send + Sync + 'static,
        F: FnMut(&mut R) -> Result<Option<T>, StreamError> + Clone + Send + Sync + 'static,
        D: FnMut(R) -> Result<(), StreamError> + Clone + Send + Sync + 'static,
    {
        let functions = Functions { create, read, close };
        Source::from_stage(stage("unfold_resource", SourceShape::new(), |outlet, setup: &Setup<'_>| {
            let supervision = setup.attributes().mandatory::<Supervision>().clone();
            UnfoldResource { outlet, resource: None, functions, supervision }
        }))
    }
}
