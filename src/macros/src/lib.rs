//! The proc macros of atoll. They are documented where the `atoll` crate exports them.
//!
//! One file per macro; each turns parsed input into tokens or a compile error that says what to write instead. The
//! made code names everything through `::atoll`, so a user depends on nothing else.

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
