//! The proc macros of atoll. They are documented where the `atoll` crate exports them.
//!
//! One file per macro; each turns parsed input into tokens or a compile error that says what to write instead. The
//! made code names everything through `::atoll`, so a user depends on nothing else.

mod protocol;
mod wire;

use proc_macro::TokenStream;

/// Makes a struct or an enum fit to travel between pods; see the trait `atoll::Wire`.
///
/// It makes the archived form `ArchivedName` beside the type, the rkyv traits, and `Wire` with its `SCHEMA`. The type
/// has no generic parameters, an enum has at least one variant, and every field is a `Wire` type or a `BTreeMap`,
/// `HashMap`, `BTreeSet` or `HashSet` of them.
#[proc_macro_derive(Wire)]
pub fn derive_wire(item: TokenStream) -> TokenStream {
    let item = syn::parse_macro_input!(item as syn::DeriveInput);
    wire::derive(&item).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a trait the protocol of an entity type: each method is a message.
///
/// A method is `async fn` (or `fn`, if it never waits) and takes its arguments by value. Who implements the trait
/// writes plain Rust; the trait itself stays as it is written.
///
/// - `&mut self`: one at a time, in order, with the state for itself.
/// - `&self`: reads the state; as many at once as the option `concurrency` allows.
/// - `View<'_, T>` as an argument: the handler borrows it (in a plain `fn` where it was received), its sender gives a
///   `T`. What else such a plain `fn` takes is `atoll::Wire` by itself: put maps and sets into a struct.
/// - `#[concurrent]` on a `&self` method: beside others, outside of `concurrency`.
/// - `#[uninterruptible]`: runs to its end when its sender stops waiting.
/// - `#[tag(7)]`: a number of its own on the wire, instead of the hash of its name; it must not change afterwards.
/// - `-> Result<Reply, Error>`: the sender gets `SendError::Declared(error)`. Any other type is a reply that cannot
///   fail. Arguments, replies and errors implement `atoll::Wire`.
///
/// The options are `name = "guild"`, by which the type is known everywhere (the trait's name in snake case, if left
/// out), and `json`, which makes its messages callable by `atoll call` (arguments, replies and errors implement
/// serde's traits then).
///
/// For `trait Guild` it makes, beside the trait and as visible:
/// - `mod guild` with one struct for each message, such as `guild::Join { user }`;
/// - `GuildRef`, the reference that senders use, with the same methods;
/// - `GuildMessage<'a>`, all messages borrowed, for matching (see `EntityOptions::load_entity`);
/// - `GuildOutcome`, what their handlers answer, for interceptors (see `EntityOptions::interceptor`);
/// - `GuildTell`, those messages that reply with nothing and cannot fail, owned (if there are any);
/// - `GuildProtocol`, the type that `Entity::Protocol` names.
///
/// The trait stands in a module, not in a function.
#[proc_macro_attribute]
pub fn protocol(arguments: TokenStream, item: TokenStream) -> TokenStream {
    protocol::expand(arguments.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
