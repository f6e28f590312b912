//! Writes the code of a protocol. Everything stands beside the trait and is as visible, but the message types, which
//! stand in a module of their own.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Ident, ItemTrait, Visibility};

use super::model::{Access, Argument, Message, Protocol};

/// What the pieces need to know.
struct Made<'a> {
    item: &'a ItemTrait,
    protocol: &'a Protocol,
    vis: &'a Visibility,
    /// The trait.
    trait_name: &'a Ident,
    /// `GuildProtocol`.
    protocol_name: Ident,
    /// `GuildRef`.
    reference: Ident,
    /// `GuildMessage`.
    borrowed: Ident,
    /// `GuildOutcome`.
    outcome: Ident,
    /// `GuildTell`.
    tell: Ident,
}

pub fn protocol(item: &ItemTrait, protocol: &Protocol) -> TokenStream {
    let plain = item.ident.unraw();
    let name = |suffix: &str| Ident::new(&format!("{plain}{suffix}"), item.ident.span());
    let made = Made {
        item,
        protocol,
        vis: &item.vis,
        trait_name: &item.ident,
        protocol_name: name("Protocol"),
        reference: name("Ref"),
        borrowed: name("Message"),
        outcome: name("Outcome"),
        tell: name("Tell"),
    };
    let parts = [
        made.plain_trait(),
        made.module(),
        made.protocol_type(),
        made.borrowed_messages(),
        made.outcomes(),
        made.message_impls(),
        made.handlers(),
        made.reference(),
        made.tell().unwrap_or_default(),
    ];
    parts.into_iter().collect()
}

impl Made<'_> {
    fn messages(&self) -> &[Message] {
        &self.protocol.messages
    }

    fn plain_trait(&self) -> TokenStream {
        let item = self.item;
        quote! {
            #[allow(async_fn_in_trait)]
            #item
        }
    }

    /// `guild::Join`, at the place of the method's name.
    fn path(&self, message: &Message) -> TokenStream {
        let (module, name) = (&self.protocol.module, &message.type_name);
        quote!(#module::#name)
    }

    fn module(&self) -> TokenStream {
        let (vis, module) = (self.vis, &self.protocol.module);
        let doc = format!("The messages of `{}`, one type for each method.", self.trait_name);
        let inner = inside(self.vis);
        let json = self.protocol.json.then(|| {
            quote! {
                #[derive(::atoll::private::serde::Serialize, ::atoll::private::serde::Deserialize)]
                #[serde(crate = "::atoll::private::serde", deny_unknown_fields)]
            }
        });
        let types = self.messages().iter().map(|message| {
            let (name, docs) = (&message.type_name, docs(message));
            let fields = message.arguments.iter().map(|Argument { name: field, ty, .. }| {
                let doc = format!("The argument `{}`.", field.unraw());
                quote!(#[doc = #doc] #inner #field: #ty)
            });
            quote! {
                #docs
                #[derive(::core::fmt::Debug, ::atoll::Wire)]
                #json
                #inner struct #name { #(#fields),* }
            }
        });
        quote! {
            #[doc = #doc]
            #[allow(clippy::module_inception)]
            #vis mod #module {
                #[allow(unused_imports)]
                use super::*;

                #(#types)*
            }
        }
    }

    fn protocol_type(&self) -> TokenStream {
        let Made { vis, protocol_name, reference, borrowed, outcome, .. } = self;
        let tell = if self.tells().next().is_some() {
            let tell = &self.tell;
            quote!(#tell)
        } else {
            quote!(::atoll::Never)
        };
        let name = &self.protocol.name;
        let doc = format!("The protocol `{name}`: what `Entity::Protocol` names.");
        let methods = self.messages().iter().map(|message| {
            let path = self.path(message);
            quote!(::atoll::entity::MethodInfo::of::<#path>())
        });
        quote! {
            #[doc = #doc]
            #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug)]
            #vis struct #protocol_name;

            #[automatically_derived]
            impl ::atoll::entity::Protocol for #protocol_name {
                const NAME: &'static str = #name;
                const METHODS: &'static [::atoll::entity::MethodInfo] = &[#(#methods),*];
                type Ref = #reference;
                type Borrowed<'a> = #borrowed<'a>;
                type Outcome = #outcome;
                type Tell = #tell;
            }
        }
    }

    fn borrowed_messages(&self) -> TokenStream {
        let Made { vis, borrowed, .. } = self;
        let doc = format!("A message of `{}`, borrowed, for matching.", self.trait_name);
        let variants = self.messages().iter().map(|message| {
            let (name, path, docs) = (&message.type_name, self.path(message), docs(message));
            quote!(#docs #name(&'a #path))
        });
        quote! {
            #[doc = #doc]
            #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug)]
            #vis enum #borrowed<'a> { #(#variants),* }
        }
    }

    /// Those that reply with nothing and cannot fail.
    fn tells(&self) -> impl Iterator<Item = &Message> {
        self.messages().iter().filter(|message| message.answer.is_nothing())
    }

    fn outcomes(&self) -> TokenStream {
        let Made { vis, outcome, .. } = self;
        let doc = format!("What the handler of a message of `{}` answers, for interceptors.", self.trait_name);
        let variants = self.messages().iter().map(|message| {
            let (name, reply, error) = (&message.type_name, reply_of(message), error_of(message));
            let doc = format!("The outcome of `{}`.", message.name);
            quote!(#[doc = #doc] #name(::core::result::Result<#reply, #error>))
        });
        let names: Vec<_> = self.messages().iter().map(|message| &message.type_name).collect();
        let methods = self.messages().iter().map(|message| &message.name);
        quote! {
            #[doc = #doc]
            #[allow(dead_code, clippy::large_enum_variant)]
            #vis enum #outcome { #(#variants),* }

            #[automatically_derived]
            impl ::atoll::entity::Outcome for #outcome {
                fn name(&self) -> &'static str {
                    match self {
                        #(#outcome::#names(_) => #methods,)*
                    }
                }

                fn is_error(&self) -> bool {
                    match self {
                        #(#outcome::#names(__outcome) => __outcome.is_err(),)*
                    }
                }
            }

            // Replies need not be fit to be shown.
            #[automatically_derived]
            impl ::core::fmt::Debug for #outcome {
                fn fmt(&self, __formatter: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    let __kind = if ::atoll::entity::Outcome::is_error(self) { "Err" } else { "Ok" };
                    ::core::write!(__formatter, "{}({__kind})", ::atoll::entity::Outcome::name(self))
                }
            }
        }
    }

    fn message_impls(&self) -> TokenStream {
        let messages = self.messages().iter().enumerate();
        messages.map(|(index, message)| self.message_impl(index, message)).collect()
    }

    fn message_impl(&self, index: usize, message: &Message) -> TokenStream {
        let Made { protocol_name, borrowed, outcome, .. } = self;
        // With one message there is no other.
        let other = (self.messages().len() > 1).then(|| quote!(_ => ::core::option::Option::None,));
        let (path, name, variant) = (self.path(message), &message.name, &message.type_name);
        let (reply, error) = (reply_of(message), error_of(message));
        let tag = match &message.tag {
            Some(tag) => quote!(#tag),
            None => {
                let protocol = &self.protocol.name;
                quote!(::atoll::base::hash::message_tag(#protocol, #name))
            }
        };
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        let access = match message.access {
            Access::Exclusive => quote!(Exclusive),
            Access::Shared => quote!(Shared),
            Access::Concurrent => quote!(Concurrent),
        };
        let uninterruptible = message.uninterruptible;
        let clashes = self.messages()[..usize::from(index)].iter().map(|other| {
            let other_path = self.path(other);
            let text = format!(
                "the messages `{}` and `{name}` of `{}` have the same tag; give one of them another with #[tag(…)]",
                other.name, self.protocol.name
            );
            quote_spanned! {message.method.span()=>
                ::core::assert!(
                    <#other_path as ::atoll::entity::Message>::TAG != <#path as ::atoll::entity::Message>::TAG,
                    #text
                );
            }
        });
        // Says what is missing in the words of `Wire`; the compiler would name a trait that it needs.
        let answers = [&message.answer.reply, &message.answer.error].into_iter().flatten();
        let travel = answers.map(|ty| quote_spanned!(ty.span()=> ::atoll::private::travels::<#ty>()));
        quote! {
            #[automatically_derived]
            impl ::atoll::entity::Message for #path {
                type Reply = #reply;
                type Error = #error;
                type Protocol = #protocol_name;
                const NAME: &'static str = #name;
                const TAG: u32 = #tag;
                const INDEX: u16 = #index;
                const ACCESS: ::atoll::entity::Access = ::atoll::entity::Access::#access;
                const UNINTERRUPTIBLE: bool = #uninterruptible;

                #[inline]
                fn borrowed(&self) -> #borrowed<'_> {
                    #borrowed::#variant(self)
                }

                #[inline]
                fn outcome(__answer: ::core::result::Result<#reply, #error>) -> #outcome {
                    #outcome::#variant(__answer)
                }

                #[inline]
                fn answer(
                    __outcome: #outcome,
                ) -> ::core::option::Option<::core::result::Result<#reply, #error>> {
                    match __outcome {
                        #outcome::#variant(__answer) => ::core::option::Option::Some(__answer),
                        #other
                    }
                }
            }

            const _: () = { #(#clashes)* #(#travel;)* };
        }
    }

    fn handlers(&self) -> TokenStream {
        let Made { trait_name, protocol_name, .. } = self;
        let handlers = self.messages().iter().map(|message| self.handler(message));
        let methods = self.messages().iter().map(|message| {
            let path = self.path(message);
            let kind = if message.access == Access::Exclusive { quote!(exclusive) } else { quote!(shared) };
            // The compiler reports a type without serde's traits here, so here is where the method stands.
            let json = self.protocol.json.then(|| quote_spanned!(message.method.span()=> .with_json::<#path>()));
            let in_place = message.has_views().then(|| {
                let place = if message.is_async { "block" } else { "place" };
                let with = format_ident!("{kind}_in_{place}", kind = kind.to_string());
                quote!(.#with::<__S, #path>())
            });
            quote!(::atoll::entity::Method::#kind::<__S, #path>()#json #in_place)
        });
        let intercepted = self.messages().iter().map(|message| {
            let path = self.path(message);
            let kind = if message.access == Access::Exclusive { quote!(exclusive) } else { quote!(shared) };
            let with = format_ident!("{}_intercepted", kind.to_string());
            let json = self.protocol.json.then(|| quote!(.with_json::<#path>()));
            quote!(::atoll::entity::Method::#kind::<__S, #path>()#json.#with::<__S, #path>())
        });
        quote! {
            #(#handlers)*

            #[automatically_derived]
            impl<__S: #trait_name + ::atoll::entity::Entity> ::atoll::entity::Serves<__S> for #protocol_name {
                const TABLE: &'static [::atoll::entity::Method] = &[#(#methods),*];
                const INTERCEPTED: &'static [::atoll::entity::Method] = &[#(#intercepted),*];
            }
        }
    }

    fn handler(&self, message: &Message) -> TokenStream {
        let (trait_name, path, method) = (self.trait_name, self.path(message), &message.method);
        let (kind, state) = match message.access {
            Access::Exclusive => (quote!(HandledExclusive), quote!(&mut __S)),
            Access::Shared | Access::Concurrent => (quote!(HandledShared), quote!(&__S)),
        };
        let fields: Vec<_> = message.arguments.iter().map(|argument| &argument.name).collect();
        let values =
            message.arguments.iter().map(
                |Argument { name, is_view, .. }| {
                    if *is_view { quote!(::atoll::View::owned(&#name)) } else { quote!(#name) }
                },
            );
        let call = quote!(<__S as #trait_name>::#method(__state, #(#values),*));
        let future = match (message.is_async, message.answer.error.is_some()) {
            // What the views borrow stays in the future.
            (true, true) if message.has_views() => quote!(async move { #call.await }),
            (true, false) if message.has_views() => quote!(async move { ::core::result::Result::Ok(#call.await) }),
            (true, true) => call,
            (true, false) => quote!(::atoll::private::Infallible::new(#call)),
            // Inside of the future, so that a panic is the entity's.
            (false, true) => quote!(async move { #call }),
            (false, false) => quote!(async move { ::core::result::Result::Ok(#call) }),
        };
        let in_place = message.has_views().then(|| self.in_place(message));
        quote! {
            #[automatically_derived]
            impl<__S: #trait_name + ::atoll::entity::Entity> ::atoll::entity::#kind<__S> for #path {
                #[inline]
                fn handle(
                    self,
                    __state: #state,
                ) -> impl ::core::future::Future<Output = ::core::result::Result<Self::Reply, Self::Error>> {
                    let Self { #(#fields),* } = self;
                    #future
                }
            }

            #in_place
        }
    }

    /// The handler of a message that lies in a body: received or, if it may be pending, in a block.
    fn in_place(&self, message: &Message) -> TokenStream {
        let (trait_name, path, method) = (self.trait_name, self.path(message), &message.method);
        let state = match message.access {
            Access::Exclusive => quote!(&'__a mut __S),
            Access::Shared | Access::Concurrent => quote!(&'__a __S),
        };
        let values = message.arguments.iter().map(|Argument { name, is_view, .. }| {
            if *is_view { quote!(::atoll::View::archived(&__archived.#name)) } else { quote!(#name) }
        });
        let owned = message.arguments.iter().filter(|argument| !argument.is_view);
        let owned = owned.map(|Argument { name, ty, .. }| {
            quote_spanned!(ty.span()=> let #name = ::atoll::private::owned::<#ty>(&__archived.#name)?;)
        });
        let call = quote!(<__S as #trait_name>::#method(__state, #(#values),*));
        let fails = message.answer.error.is_some();
        let answer = quote!(::core::result::Result<Self::Reply, Self::Error>);
        let (read, handler, run) = match (message.is_async, fails) {
            (false, true) => (quote!(ReadInPlace), quote!(::core::ops::FnOnce() -> #answer), quote!(move || #call)),
            (false, false) => (
                quote!(ReadInPlace),
                quote!(::core::ops::FnOnce() -> #answer),
                quote!(move || ::core::result::Result::Ok(#call)),
            ),
            (true, _) => {
                let future = if fails { call } else { quote!(::atoll::private::Infallible::new(#call)) };
                (
                    quote!(ReadInBlock),
                    quote!(::core::future::IntoFuture<Output = #answer>),
                    quote!(::atoll::private::HandlerCall::new(move || #future)),
                )
            }
        };
        quote! {
            #[automatically_derived]
            impl<'__a, __S> ::atoll::entity::#read<'__a, #state> for #path
            where
                __S: #trait_name + ::atoll::entity::Entity,
            {
                #[inline]
                fn read(
                    __archived: &'__a Self::Archived,
                    __state: #state,
                ) -> ::core::result::Result<impl #handler, ::atoll::wire::CodecError> {
                    #(#owned)*
                    ::core::result::Result::Ok(#run)
                }
            }
        }
    }

    fn reference(&self) -> TokenStream {
        let Made { vis, trait_name, protocol_name, reference, .. } = self;
        let doc = format!(
            "A reference to one entity of the type `{}`, with the methods of `{trait_name}`. It costs nothing to clone.",
            self.protocol.name
        );
        let methods = self.messages().iter().map(|message| {
            let (method, path, docs) = (&message.method, self.path(message), docs(message));
            let arguments = message.arguments.iter().map(|Argument { name, ty, .. }| quote!(#name: #ty));
            let fields = message.arguments.iter().map(|argument| &argument.name);
            quote! {
                #docs
                #[inline]
                #[inline(always)]
                #vis fn #method(&self, #(#arguments),*) -> ::atoll::entity::Ask<#path> {
                    ::atoll::entity::EntityTarget::ask(&self.0, #path { #(#fields),* })
                }
            }
        });
        let id = (!self.messages().iter().any(|message| message.name == "id")).then(|| {
            quote! {
                /// The id of the entity.
                #[must_use]
                #vis fn id(&self) -> &::atoll::base::EntityId {
                    ::atoll::entity::EntityTarget::id(&self.0)
                }
            }
        });
        quote! {
            #[doc = #doc]
            #[derive(::core::clone::Clone, ::core::fmt::Debug)]
            #vis struct #reference(::atoll::entity::EntityTarget);

            #[automatically_derived]
            impl ::atoll::entity::EntityRef for #reference {
                type Protocol = #protocol_name;

                #[inline]
                fn from_target(target: ::atoll::entity::EntityTarget) -> Self {
                    #reference(target)
                }

                #[inline]
                fn target(&self) -> &::atoll::entity::EntityTarget {
                    &self.0
                }
            }

            #[allow(dead_code, clippy::all, clippy::pedantic)]
            impl #reference {
                #(#methods)*
                #id
            }
        }
    }

    fn tell(&self) -> Option<TokenStream> {
        let Made { vis, tell, reference, .. } = self;
        let messages: Vec<_> = self.tells().collect();
        if messages.is_empty() {
            return None;
        }
        let doc = format!("A message of `{}` that replies with nothing and cannot fail.", self.trait_name);
        let names: Vec<_> = messages.iter().map(|message| &message.type_name).collect();
        let paths: Vec<_> = messages.iter().map(|message| self.path(message)).collect();
        let docs = messages.iter().map(|message| docs(message));
        let message = format_ident!("message");
        Some(quote! {
            #[doc = #doc]
            #[derive(::core::fmt::Debug)]
            #[allow(dead_code)]
            #vis enum #tell { #(#docs #names(#paths)),* }

            #[allow(dead_code)]
            impl #tell {
                /// Sends it; the future is ready once it is in the mailbox of the entity.
                ///
                /// # Errors
                /// If it did not get there.
                #vis async fn send(
                    self,
                    to: &#reference,
                ) -> ::core::result::Result<(), ::atoll::ClusterError> {
                    match self {
                        #(#tell::#names(#message) => to.0.ask(#message).discard().await,)*
                    }
                }
            }

            #[automatically_derived]
            impl ::atoll::entity::Tell<#reference> for #tell {
                async fn tell(
                    self,
                    to: &#reference,
                ) -> ::core::result::Result<(), ::atoll::ClusterError> {
                    self.send(to).await
                }
            }

            #(
                #[automatically_derived]
                impl ::core::convert::From<#paths> for #tell {
                    fn from(#message: #paths) -> Self {
                        #tell::#names(#message)
                    }
                }
            )*
        })
    }
}

fn reply_of(message: &Message) -> TokenStream {
    message.answer.reply.as_ref().map_or_else(|| quote!(()), |ty| quote!(#ty))
}

fn error_of(message: &Message) -> TokenStream {
    message.answer.error.as_ref().map_or_else(|| quote!(::atoll::Never), |ty| quote!(#ty))
}

fn docs(message: &Message) -> TokenStream {
    if message.docs.is_empty() {
        let doc = format!("The message `{}`.", message.name);
        return quote!(#[doc = #doc]);
    }
    let docs = &message.docs;
    quote!(#(#docs)*)
}

/// The same visibility, written one module further inside.
fn inside(vis: &Visibility) -> TokenStream {
    match vis {
        Visibility::Public(_) => quote!(pub),
        Visibility::Inherited => quote!(pub(super)),
        Visibility::Restricted(restricted) => {
            let path = &restricted.path;
            match path.segments.first() {
                Some(first) if first.ident == "crate" => quote!(#vis),
                Some(first) if first.ident == "self" => quote!(pub(super)),
                _ => quote!(pub(in super::#path)),
            }
        }
    }
}
