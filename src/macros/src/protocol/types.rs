//! What a macro can say of a type: it sees names, not types.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{Error, GenericArgument, PathArguments, Result, ReturnType, Type};

/// What a method answers.
pub struct Answer {
    /// `None` for `()`.
    pub reply: Option<Type>,
    /// `None` if it cannot fail.
    pub error: Option<Type>,
}

impl Answer {
    pub fn of(output: &ReturnType) -> Result<Answer> {
        let ReturnType::Type(_, ty) = output else { return Ok(Answer { reply: None, error: None }) };
        refuse_words(ty)?;
        if let Some(span) = borrow_in(ty.to_token_stream()) {
            return Err(Error::new(span, "a reply leaves the entity, so it cannot borrow from it; reply with a value"));
        }
        match result_of(ty) {
            None => Ok(Answer { reply: Some(ty.as_ref().clone()).filter(|ty| !is_unit(ty)), error: None }),
            Some(arguments) => match arguments.as_slice() {
                [reply, error] => {
                    Ok(Answer { reply: Some(reply.clone()).filter(|ty| !is_unit(ty)), error: Some(error.clone()) })
                }
                _ => Err(Error::new(ty.span(), "write `Result<Reply, Error>` with both types, not an alias")),
            },
        }
    }

    /// Whether it says nothing and cannot fail.
    pub fn is_nothing(&self) -> bool {
        self.reply.is_none() && self.error.is_none()
    }
}

const STREAMS: &str = "streaming replies come with the stream engine; not in this version";
const SELF: &str = "a message cannot name `Self`: its sender does not know the entity's type";
const IMPL: &str = "`impl Trait` cannot travel: both sides need to know the type; name it";
const SHARED: &str = "`Rc` and `Arc` cannot travel: nothing is shared between pods; send the value itself";
const DYN: &str = "`dyn Trait` cannot travel: both sides need to know the type; name it";

/// Refuses an argument that cannot be a field of a message.
pub fn check_argument(ty: &Type) -> Result<()> {
    refuse_words(ty)?;
    if let Some(span) = borrow_in(ty.to_token_stream()) {
        let message = "an argument crosses cores and pods, so it cannot be borrowed; take it by value, \
                       or the whole argument as `View<'_, T>`";
        return Err(Error::new(span, message));
    }
    Ok(())
}

/// The `T` of a `View<'_, T>`.
pub fn viewed(ty: &Type) -> Result<Option<Type>> {
    let Type::Path(path) = ty else { return Ok(None) };
    let Some(last) = path.path.segments.last().filter(|last| last.ident == "View") else { return Ok(None) };
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return Ok(None) };
    let arguments: Vec<_> = arguments.args.iter().collect();
    match arguments.as_slice() {
        [GenericArgument::Lifetime(lifetime), GenericArgument::Type(ty)] if lifetime.ident == "_" => {
            Ok(Some(ty.clone()))
        }
        [GenericArgument::Lifetime(lifetime), ..] => {
            Err(Error::new(lifetime.span(), "a view lives as long as the call of its handler: write `View<'_, T>`"))
        }
        // A type of the user that is named so.
        _ => Ok(None),
    }
}

/// What neither an argument nor a reply can name, with the reason.
const REFUSED: [(&str, &str); 7] = [
    ("Streamed", STREAMS),
    ("Duplex", STREAMS),
    ("Self", SELF),
    ("impl", IMPL),
    ("dyn", DYN),
    ("Rc", SHARED),
    ("Arc", SHARED),
];

fn refuse_words(ty: &Type) -> Result<()> {
    for ident in idents(ty.to_token_stream()) {
        if let Some((_, message)) = REFUSED.iter().find(|(word, _)| ident == word) {
            return Err(Error::new(ident.span(), *message));
        }
    }
    Ok(())
}

/// Every name in a type, at any depth (a type's depth bounds the recursion).
pub fn idents(tokens: TokenStream) -> Vec<proc_macro2::Ident> {
    let mut found = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => found.extend(idents(group.stream())),
            TokenTree::Ident(ident) => found.push(ident),
            _ => {}
        }
    }
    found
}

/// Where a type borrows: a `&` or a lifetime.
fn borrow_in(tokens: TokenStream) -> Option<Span> {
    for token in tokens {
        match token {
            TokenTree::Punct(punct) if matches!(punct.as_char(), '&' | '\'') => return Some(punct.span()),
            TokenTree::Group(group) => {
                if let Some(span) = borrow_in(group.stream()) {
                    return Some(span);
                }
            }
            _ => {}
        }
    }
    None
}

fn is_unit(ty: &Type) -> bool {
    matches!(ty, Type::Tuple(tuple) if tuple.elems.is_empty())
}

/// The type arguments of a `Result`.
fn result_of(ty: &Type) -> Option<Vec<Type>> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    if last.ident != "Result" {
        return None;
    }
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return Some(Vec::new()) };
    let types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    });
    Some(types.collect())
}
