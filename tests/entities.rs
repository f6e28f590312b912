//! How entities behave, on one core without a pod, through the references that users have. The clock is the test's.

#[path = "support/host.rs"]
mod host;
#[path = "support/wire.rs"]
mod wire;

#[path = "entities/probe.rs"]
mod probe;

#[path = "entities/cycles.rs"]
mod cycles;
#[path = "entities/defects.rs"]
mod defects;
#[path = "entities/expiry.rs"]
mod expiry;
#[path = "entities/interceptor.rs"]
mod interceptor;
#[path = "entities/interruption.rs"]
mod interruption;
#[path = "entities/life.rs"]
mod life;
#[path = "entities/messages.rs"]
mod messages;
#[path = "entities/overlap.rs"]
mod overlap;
#[path = "entities/send_stream.rs"]
mod send_stream;
#[path = "entities/services.rs"]
mod services;
#[path = "entities/update.rs"]
mod update;
#[path = "entities/view.rs"]
mod view;
#[path = "entities/view_async.rs"]
mod view_async;
