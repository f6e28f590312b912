//! The reference services on a core.

use atoll::services::echo::{EchoEntity, EchoRef};
use atoll::services::guild::{GuildEntity, GuildFull, GuildRef, MEMBERS_MAX, PayError};
use atoll::{ClusterError, EntityOptions, SendError};

use crate::host::Core;
use crate::probe::cluster;

fn core() -> Core {
    Core::new().with::<EchoEntity>(EntityOptions::default()).with::<GuildEntity>(EntityOptions::default()).ready()
}

#[test]
fn echo() {
    let core = core();
    let echo = core.entity::<EchoRef>("e1");
    assert_eq!(core.block(echo.add(3)), Ok(3));
    assert_eq!(core.block(echo.yields(4)), Ok(7));
    assert_eq!(core.block(echo.block([1; 8])), Ok(15));
    assert_eq!(core.block(echo.tell(5)), Ok(()));
    assert_eq!(core.block(echo.total()), Ok(20));
    assert_eq!(core.block(echo.echo(vec![1, 2])), Ok(vec![1, 2]));
    assert_eq!(core.block(echo.spin(0)), Ok(()));
    let sleep = core.start(echo.sleep(5));
    assert!(sleep.waits());
    core.pass(std::time::Duration::from_millis(6));
    assert_eq!(sleep.take(), Some(Ok(())));
    assert_eq!(cluster(Some(core.block(echo.panic("a test wants it".into())))), ClusterError::EntityDefect);
    assert_eq!(core.block(echo.total()), Ok(0), "a new one");
}

#[test]
fn guild() {
    let core = core();
    let guild = core.entity::<GuildRef>("g1");
    assert_eq!(core.block(guild.join("bob".into())), Ok(vec!["bob".into()]));
    assert_eq!(core.block(guild.join("ann".into())), Ok(vec!["ann".into(), "bob".into()]));
    assert_eq!(core.block(guild.leave("bob".into()).discard()), Ok(()));
    assert_eq!(core.block(guild.members()), Ok(vec!["ann".into()]));
    assert_eq!(core.block(guild.pay("bob".into(), 1)), Err(SendError::Declared(PayError::NotAMember)));
    assert_eq!(core.block(guild.pay("ann".into(), 5)), Ok(5));
    assert_eq!(
        core.block(guild.pay("ann".into(), u64::MAX)),
        Err(SendError::Declared(PayError::TooMuch { treasury: 5 }))
    );
    for user in 1..MEMBERS_MAX {
        assert!(core.block(guild.join(format!("user {user}"))).is_ok());
    }
    assert_eq!(core.block(guild.join("late".into())), Err(SendError::Declared(GuildFull { max: MEMBERS_MAX })));
    assert!(core.block(guild.join("ann".into())).is_ok(), "a member stays one");
}
