//! `#[atoll::protocol]`.
//!
//! `options` reads what stands in the attribute, `model` checks the trait and reads its messages, `emit` writes the
//! code. Invariant: whatever `model` accepts compiles, unless a type in it lacks a trait; those errors come from the
//! compiler and point at the user's own line, because the made code keeps the spans of the trait.

mod emit;
mod model;
mod options;
mod types;

use proc_macro2::TokenStream;
use syn::{ItemTrait, Result};

pub fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options = syn::parse2::<options::Options>(arguments)?;
    let mut item = syn::parse2::<ItemTrait>(item)?;
    let protocol = model::Protocol::read(&mut item, options)?;
    Ok(emit::protocol(&item, &protocol))
}

/// Collects errors, so that a user sees all of them at once.
#[derive(Default)]
struct Errors(Option<syn::Error>);

impl Errors {
    fn add(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(known) => known.combine(error),
            None => self.0 = Some(error),
        }
    }

    fn take<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    fn finish(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}
