//! Reads the messages of a trait, refuses what cannot be one, and takes the macro's own attributes off the methods.

use quote::ToTokens;
use std::collections::HashMap;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Error, FnArg, Ident, ItemTrait, LitInt, Pat, Receiver, Result, TraitItem, TraitItemFn, Type};

use super::Errors;
use super::options::Options;
use super::types::{self, Answer};

pub struct Protocol {
    /// The name of the entity type.
    pub name: String,
    pub json: bool,
    /// The module of the message types.
    pub module: Ident,
    pub messages: Vec<Message>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Exclusive,
    Shared,
    Concurrent,
}

/// One method.
pub struct Message {
    /// As written, with `r#` if need be.
    pub method: Ident,
    /// The name without `r#`.
    pub name: String,
    /// The type of the message.
    pub type_name: Ident,
    pub docs: Vec<Attribute>,
    pub arguments: Vec<Argument>,
    pub answer: Answer,
    pub access: Access,
    pub uninterruptible: bool,
    pub tag: Option<LitInt>,
    pub is_async: bool,
}

/// One argument, which is a field of its message.
pub struct Argument {
    pub name: Ident,
    /// The type of the field.
    pub ty: Type,
    /// The handler takes a `View` of it.
    pub is_view: bool,
}

impl Protocol {
    pub fn read(item: &mut ItemTrait, options: Options) -> Result<Protocol> {
        let mut errors = Errors::default();
        if !item.generics.params.is_empty() || item.generics.where_clause.is_some() {
            let message = "a protocol has no generic parameters: its messages have one shape; write a trait per use";
            errors.add(Error::new_spanned(&item.generics, message));
        }
        if let Some(unsafety) = &item.unsafety {
            errors.add(Error::new(unsafety.span(), "a protocol is a safe trait"));
        }
        let mut messages = Vec::new();
        for member in &mut item.items {
            let read = match member {
                TraitItem::Fn(method) => Message::read(method),
                other => Err(Error::new_spanned(other, "a protocol has methods only: each is a message")),
            };
            messages.extend(errors.take(read));
        }
        if item.items.is_empty() {
            errors.add(Error::new(item.ident.span(), "a protocol has at least one message"));
        }
        check_names(&messages, &mut errors);
        errors.finish()?;
        let plain = snake_case(&item.ident.unraw().to_string());
        Ok(Protocol {
            name: options.name.map_or_else(|| plain.clone(), |name| name.value()),
            json: options.json,
            module: identifier(&plain, item.ident.span()),
            messages,
        })
    }
}

fn check_names(messages: &[Message], errors: &mut Errors) {
    let mut known: HashMap<String, &Message> = HashMap::new();
    for message in messages {
        if let Some(other) = known.insert(message.type_name.to_string(), message) {
            let text = format!(
                "the messages `{}` and `{}` would have the same type name `{}`; rename one",
                other.name, message.name, message.type_name
            );
            errors.add(Error::new(message.method.span(), text));
        }
    }
    for message in messages {
        let types = message.arguments.iter().flat_map(|argument| types::idents(argument.ty.to_token_stream()));
        for hidden in types.filter(|ident| known.contains_key(&ident.to_string())) {
            let text =
                format!("the message type `{hidden}`, made of a method's name, would hide this type; rename one");
            errors.add(Error::new(hidden.span(), text));
        }
    }
}

impl Message {
    /// Whether its handler reads the message in the bytes in which it came.
    pub fn has_views(&self) -> bool {
        self.arguments.iter().any(|argument| argument.is_view)
    }

    fn read(method: &mut TraitItemFn) -> Result<Message> {
        let mut errors = Errors::default();
        let marks = errors.take(Marks::take(&mut method.attrs)).unwrap_or_default();
        refuse_signature(method, &mut errors);
        let signature = &method.sig;
        let mut inputs = signature.inputs.iter();
        let exclusive = errors.take(match inputs.next() {
            Some(FnArg::Receiver(receiver)) => is_exclusive(receiver),
            _ => Err(Error::new(
                signature.ident.span(),
                "a message is handled by an entity: take `&mut self` or `&self`",
            )),
        });
        let access = match (exclusive, &marks.concurrent) {
            (Some(true), Some(mark)) => {
                errors.add(Error::new_spanned(mark, "a #[concurrent] message takes &self"));
                Access::Concurrent
            }
            (Some(true), None) => Access::Exclusive,
            (_, Some(_)) => Access::Concurrent,
            _ => Access::Shared,
        };
        let arguments = inputs.filter_map(|input| errors.take(read_argument(input))).collect();
        let answer = errors.take(Answer::of(&signature.output));
        let name = signature.ident.unraw().to_string();
        let type_name = errors.take(camel_case(&name, &signature.ident));
        errors.finish()?;
        let (Some(answer), Some(type_name)) = (answer, type_name) else { unreachable!("their errors were reported") };
        Ok(Message {
            method: signature.ident.clone(),
            name,
            type_name,
            docs: method.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect(),
            arguments,
            answer,
            access,
            uninterruptible: marks.uninterruptible,
            tag: marks.tag,
            is_async: signature.asyncness.is_some(),
        })
    }
}

fn refuse_signature(method: &TraitItemFn, errors: &mut Errors) {
    let signature = &method.sig;
    if !signature.generics.params.is_empty() || signature.generics.where_clause.is_some() {
        let message = "a message has no generic parameters: both sides need one shape of it";
        errors.add(Error::new_spanned(&signature.generics, message));
    }
    let unusual = [signature.unsafety.map(|token| token.span()), signature.constness.map(|token| token.span())];
    for span in unusual.into_iter().flatten().chain(signature.abi.as_ref().map(|abi| abi.span())) {
        errors.add(Error::new(span, "a message is an `async fn` or a plain `fn`"));
    }
    if let Some(cfg) = method.attrs.iter().find(|attribute| attribute.path().is_ident("cfg")) {
        let message = "a message cannot depend on `cfg`: all pods and clients need the same messages";
        errors.add(Error::new_spanned(cfg, message));
    }
}

/// Whether the receiver is `&mut self`.
fn is_exclusive(receiver: &Receiver) -> Result<bool> {
    let refused = |message: &str| Err(Error::new_spanned(receiver, message));
    if receiver.colon_token.is_some() {
        return refused("a message takes `&mut self` or `&self`, without a type");
    }
    match &receiver.reference {
        None => refused("a message does not consume its entity: take `&mut self` or `&self`"),
        Some((_, Some(_))) => refused("a message takes `&mut self` or `&self`, without a lifetime"),
        Some((_, None)) => Ok(receiver.mutability.is_some()),
    }
}

fn read_argument(input: &FnArg) -> Result<Argument> {
    let FnArg::Typed(argument) = input else {
        return Err(Error::new(input.span(), "only the first argument can be `self`"));
    };
    let Pat::Ident(pattern) = &*argument.pat else {
        return Err(Error::new_spanned(
            &argument.pat,
            "an argument becomes a field of its message, so it needs a name",
        ));
    };
    let viewed = types::viewed(&argument.ty)?;
    let ty = viewed.as_ref().unwrap_or(&argument.ty);
    types::check_argument(ty)?;
    Ok(Argument { name: pattern.ident.clone(), ty: ty.clone(), is_view: viewed.is_some() })
}

/// The macro's own attributes of a method.
#[derive(Default)]
struct Marks {
    concurrent: Option<Attribute>,
    uninterruptible: bool,
    tag: Option<LitInt>,
}

impl Marks {
    /// Takes them off the method.
    fn take(attributes: &mut Vec<Attribute>) -> Result<Marks> {
        let mut marks = Marks::default();
        for attribute in core::mem::take(attributes) {
            if attribute.path().is_ident("concurrent") {
                attribute.meta.require_path_only()?;
                marks.concurrent = Some(attribute);
            } else if attribute.path().is_ident("uninterruptible") {
                attribute.meta.require_path_only()?;
                marks.uninterruptible = true;
            } else if attribute.path().is_ident("tag") {
                let tag: LitInt = attribute.parse_args()?;
                tag.base10_parse::<u32>()?;
                marks.tag = Some(tag);
            } else {
                attributes.push(attribute);
            }
        }
        Ok(marks)
    }
}

/// `JoinAll` of `join_all`.
fn camel_case(name: &str, at: &Ident) -> Result<Ident> {
    let mut camel = String::with_capacity(name.len());
    for word in name.split('_') {
        let mut letters = word.chars();
        camel.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        camel.extend(letters);
    }
    match syn::parse_str::<Ident>(&camel) {
        Ok(_) => Ok(Ident::new(&camel, at.span())),
        Err(_) => Err(Error::new(at.span(), format!("`{camel}` is no type name; name the message otherwise"))),
    }
}

/// `chat_room` of `ChatRoom`, and `http_api` of `HTTPApi`.
fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::with_capacity(name.len() + 4);
    for (at, letter) in letters.iter().enumerate() {
        let after_small = at > 0 && !letters[at - 1].is_uppercase() && letters[at - 1] != '_';
        let before_small =
            at > 0 && letters[at - 1].is_uppercase() && letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        if letter.is_uppercase() && (after_small || before_small) {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// An identifier, raw if the word is a keyword.
fn identifier(word: &str, span: proc_macro2::Span) -> Ident {
    match syn::parse_str::<Ident>(word) {
        Ok(_) => Ident::new(word, span),
        Err(_) => Ident::new_raw(word, span),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_change_their_case() {
        for (camel, snake) in
            [("Guild", "guild"), ("ChatRoom", "chat_room"), ("HTTPApi", "http_api"), ("V2Api", "v2_api")]
        {
            assert_eq!(snake_case(camel), snake);
        }
        let at = Ident::new("x", proc_macro2::Span::call_site());
        for (snake, camel) in [("join", "Join"), ("deposit_all", "DepositAll"), ("type", "Type"), ("a__b", "AB")] {
            assert_eq!(camel_case(snake, &at).unwrap(), camel);
        }
        assert!(camel_case("_", &at).is_err());
        assert!(camel_case("_1", &at).is_err());
        assert!(camel_case("self", &at).is_err());
    }
}
