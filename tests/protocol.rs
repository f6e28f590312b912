//! What `#[atoll::protocol]` makes of a trait. The lints prove that the made code troubles no strict user.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, missing_debug_implementations, clippy::all)]

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use atoll::base::hash::message_tag;
use atoll::entity::{Access, Message, MethodInfo};
use atoll::services::guild::{Guild, GuildEntity, GuildFull, GuildMessage, GuildProtocol, GuildTell, PayError, guild};
use atoll::{Entity, EntityId, Never, Protocol, Scope, StartError, Wire};

fn block<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits for nothing"),
    }
}

/// Every kind of method; no documentation needed where the macro writes its own.
#[atoll::protocol(json)]
#[allow(missing_docs)]
pub trait HTTPCounter {
    /// Documented.
    async fn add(&mut self, amount: u64) -> u64;
    fn peek(&self) -> u64;
    fn try_set(&mut self, value: u64) -> Result<(), String>;
    #[concurrent]
    #[uninterruptible]
    async fn names(&self, names: BTreeMap<String, u64>) -> Option<Vec<String>>;
    #[tag(0x2a)]
    async fn r#type(&mut self, r#fn: u8);
    async fn id(&self) -> String;
}

/// Its entity.
#[derive(Debug, Default)]
pub struct Counter(u64);

impl Entity for Counter {
    type Protocol = HTTPCounterProtocol;

    async fn start(_: &EntityId, _: Scope<Self>) -> Result<Self, StartError> {
        Ok(Counter::default())
    }
}

impl HTTPCounter for Counter {
    async fn add(&mut self, amount: u64) -> u64 {
        self.0 += amount;
        self.0
    }

    fn peek(&self) -> u64 {
        self.0
    }

    fn try_set(&mut self, value: u64) -> Result<(), String> {
        self.0 = value;
        Ok(())
    }

    async fn names(&self, names: BTreeMap<String, u64>) -> Option<Vec<String>> {
        Some(names.into_keys().collect())
    }

    async fn r#type(&mut self, r#fn: u8) {
        self.0 = r#fn.into();
    }

    async fn id(&self) -> String {
        String::new()
    }
}

mod visible_here_only {
    use super::{Entity, EntityId, Scope, StartError};

    #[derive(atoll::Wire, Debug)]
    struct Secret(u8);

    #[atoll::protocol(name = "private-one")]
    trait Private {
        async fn tell(&mut self, secret: Secret);
        async fn ask(&self) -> Result<Secret, Secret>;
    }

    #[derive(Debug)]
    struct Keeper;

    impl Entity for Keeper {
        type Protocol = PrivateProtocol;

        async fn start(_: &EntityId, _: Scope<Self>) -> Result<Self, StartError> {
            Ok(Keeper)
        }
    }

    impl Private for Keeper {
        async fn tell(&mut self, secret: Secret) {
            assert_eq!(secret.0, 1);
        }

        async fn ask(&self) -> Result<Secret, Secret> {
            Err(Secret(2))
        }
    }

    #[test]
    fn a_private_protocol_may_use_private_types() {
        super::block(Keeper.tell(Secret(1)));
        assert!(super::block(Keeper.ask()).is_err());
        assert_eq!(<PrivateProtocol as super::Protocol>::NAME, "private-one");
    }
}

#[test]
fn the_entity_is_plain_rust() {
    let mut state = GuildEntity::default();
    assert_eq!(block(state.join("ann".into())), Ok(vec!["ann".into()]));
    block(state.leave("bob".into()));
    assert_eq!(block(state.members()), ["ann"]);
    assert_eq!(block(state.pay("bob".into(), 1)), Err(PayError::NotAMember));
}

#[test]
fn the_protocol_knows_its_methods() {
    let row = |method: &MethodInfo| (method.name, method.access, method.uninterruptible);
    assert_eq!(GuildProtocol::NAME, "guild");
    assert_eq!(
        GuildProtocol::METHODS.iter().map(row).collect::<Vec<_>>(),
        [
            ("join", Access::Exclusive, false),
            ("leave", Access::Exclusive, false),
            ("members", Access::Concurrent, false),
            ("pay", Access::Exclusive, true),
        ]
    );
    assert_eq!(HTTPCounterProtocol::NAME, "http_counter");
    assert_eq!(
        HTTPCounterProtocol::METHODS.iter().map(row).collect::<Vec<_>>(),
        [
            ("add", Access::Exclusive, false),
            ("peek", Access::Shared, false),
            ("try_set", Access::Exclusive, false),
            ("names", Access::Concurrent, true),
            ("type", Access::Exclusive, false),
            ("id", Access::Shared, false),
        ]
    );
    assert_eq!(GuildProtocol::METHODS[usize::from(guild::Pay::INDEX)], MethodInfo::of::<guild::Pay>());
}

/// Tags travel between versions, so they never change. (The numbers come from another implementation.)
#[test]
fn tags_are_fixed() {
    let tags = [guild::Join::TAG, guild::Leave::TAG, guild::Members::TAG, guild::Pay::TAG];
    assert_eq!(tags, ["join", "leave", "members", "pay"].map(|method| message_tag("guild", method)));
    assert_eq!(tags, TAGS, "{tags:#010x?}");
    assert_eq!(http_counter::Type::TAG, 42, "one that the trait says itself");
}

const TAGS: [u32; 4] = [0xf831_b6c8, 0x1098_5308, 0x607b_6d65, 0x34ea_9353];

#[test]
fn the_schema_follows_arguments_reply_and_error() {
    macro_rules! schema {
        ($($method:tt)*) => {{
            mod scope {
                #[atoll::protocol]
                #[allow(dead_code)]
                trait P { $($method)* }
                pub const SCHEMA: u64 = <P_ as atoll::entity::Message>::CALL_SCHEMA;
                type P_ = p::Call;
            }
            scope::SCHEMA
        }};
    }
    let schemas = [
        schema!(
            async fn call(&mut self, user: String) -> u32;
        ),
        schema!(
            async fn call(&mut self, name: String) -> u32;
        ),
        schema!(
            async fn call(&mut self, user: Vec<u8>) -> u32;
        ),
        schema!(
            async fn call(&mut self, user: String, more: u8) -> u32;
        ),
        schema!(
            async fn call(&mut self, user: String) -> u64;
        ),
        schema!(
            async fn call(&mut self, user: String) -> Result<u32, u8>;
        ),
        schema!(
            async fn call(&mut self, user: String);
        ),
        schema!(
            async fn call(&mut self) -> u32;
        ),
    ];
    for (at, schema) in schemas.iter().enumerate() {
        assert!(!schemas[..at].contains(schema), "schema {at} equals an earlier one");
    }
    assert_eq!(
        schemas[0],
        schema!(
            #[concurrent]
            fn call(&self, user: String) -> u32;
        ),
        "how a message is handled is nobody else's business"
    );
    assert_eq!(
        schemas[0],
        schema!(
            async fn call(&mut self, user: String) -> Result<u32, atoll::Never>;
        )
    );
}

#[test]
fn replies_and_errors_are_those_of_the_trait() {
    fn is<M: Message<Reply = R, Error = E>, R: Wire, E: Wire>() {}
    is::<guild::Join, Vec<String>, GuildFull>();
    is::<guild::Leave, (), Never>();
    is::<guild::Pay, u64, PayError>();
    is::<http_counter::TrySet, (), String>();
    is::<http_counter::Names, Option<Vec<String>>, Never>();
}

#[test]
fn messages_travel_in_json() {
    let pay: guild::Pay = serde_json::from_str(r#"{"user":"ann","coins":3}"#).unwrap();
    assert_eq!((pay.user.as_str(), pay.coins), ("ann", 3));
    assert_eq!(serde_json::to_string(&pay).unwrap(), r#"{"user":"ann","coins":3}"#);
    let _: guild::Members = serde_json::from_str("{}").unwrap();
    let unknown = serde_json::from_str::<guild::Join>(r#"{"user":"ann","coins":3}"#).unwrap_err();
    assert!(unknown.to_string().contains("unknown field `coins`, expected `user`"), "{unknown}");
    let missing = serde_json::from_str::<guild::Join>("{}").unwrap_err();
    assert!(missing.to_string().contains("missing field `user`"), "{missing}");
}

#[test]
fn messages_can_be_matched_and_shown() {
    let join = guild::Join { user: "ann".into() };
    assert!(matches!(join.borrowed(), GuildMessage::Join(guild::Join { user }) if user == "ann"));
    assert_eq!(format!("{:?}", join.borrowed()), r#"Join(Join { user: "ann" })"#);
    let tell = GuildTell::from(guild::Leave { user: "ann".into() });
    assert_eq!(format!("{tell:?}"), r#"Leave(Leave { user: "ann" })"#);
}

#[test]
fn handles_go_to_any_thread() {
    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}
    is_send::<atoll::services::guild::GuildRef>();
    is_sync::<atoll::services::guild::GuildRef>();
    is_send::<atoll::Messenger<atoll::services::guild::GuildRef>>();
    is_send::<atoll::Ask<guild::Join>>();
    is_send::<atoll::Discard<guild::Leave>>();
}
