//! One field: how it is archived and what it adds to the schema.
//!
//! Called by the derive for each field of a struct or variant. Maps and sets are recognized by the last segment of
//! their path, since a macro sees names and not types; one behind an alias is refused by the compiler (no `Wire` impl).

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, Field, GenericArgument, Ident, PathArguments, Result, Type};

pub struct FieldPlan<'a> {
    pub field: &'a Field,
    /// The name in the schema: of the field, or its number.
    pub name: String,
    /// The variable that holds its value.
    pub binding: Ident,
    /// An expression for its schema.
    pub schema: TokenStream,
    /// rkyv's wrapper for a field that does not archive as its type does.
    with: Option<TokenStream>,
}

impl<'a> FieldPlan<'a> {
    pub fn new(item: &Ident, at: usize, field: &'a Field) -> Result<FieldPlan<'a>> {
        if mentions(&field.ty, item) {
            let message = "a recursive type cannot travel: its depth has no bound; send a flat list with indexes";
            return Err(Error::new(field.ty.span(), message));
        }
        if let Some(pointer) = shared_pointer(&field.ty) {
            let message = format!("`{pointer}` cannot travel: nothing is shared between pods; send the value itself");
            return Err(Error::new(pointer.span(), message));
        }
        let travel = Travel::of(&field.ty);
        Ok(FieldPlan {
            field,
            name: field.ident.as_ref().map_or_else(|| at.to_string(), plain),
            binding: format_ident!("field_{at}"),
            schema: travel.schema,
            with: travel.with,
        })
    }

    /// Whether the field archives otherwise than its type does.
    pub fn has_wrapper(&self) -> bool {
        self.with.is_some()
    }

    /// The field in the twin.
    pub fn twin(&self) -> TokenStream {
        let Field { ident, colon_token, ty, .. } = self.field;
        let with = self.with.as_ref().map(|with| quote!(#[rkyv(with = #with)]));
        quote!(#with #ident #colon_token #ty)
    }

    /// The field in the archived type.
    pub fn archived(&self, in_enum: bool) -> TokenStream {
        let Field { ident, colon_token, ty, vis, .. } = self.field;
        let vis = (!in_enum).then_some(vis);
        let archived = match &self.with {
            Some(with) => quote!(<#with as ::atoll::private::rkyv::with::ArchiveWith<#ty>>::Archived),
            None => quote!(<#ty as ::atoll::private::rkyv::Archive>::Archived),
        };
        let doc = format!("The archived form of `{}`.", self.name);
        quote!(#[doc = #doc] #vis #ident #colon_token #archived)
    }
}

/// A name without the `r#` of a raw one.
pub fn plain(name: &Ident) -> String {
    name.unraw().to_string()
}

/// How a type travels.
struct Travel {
    with: Option<TokenStream>,
    schema: TokenStream,
}

impl Travel {
    fn of(ty: &Type) -> Travel {
        match ty {
            Type::Paren(inner) => return Travel::of(&inner.elem),
            Type::Group(inner) => return Travel::of(&inner.elem),
            Type::Array(array) => {
                let (element, length) = (Travel::of(&array.elem), &array.len);
                let schema = &element.schema;
                if element.with.is_some() {
                    return element.mapped(quote!(::atoll::private::schema::array(#schema, #length)));
                }
            }
            Type::Path(path) if path.qself.is_none() => {
                if let Some(travel) = path.path.segments.last().and_then(Travel::of_segment) {
                    return travel;
                }
            }
            _ => {}
        }
        Travel { with: None, schema: quote_spanned!(ty.span()=> <#ty as ::atoll::Wire>::SCHEMA) }
    }

    /// For what is a map or set, or holds one.
    fn of_segment(segment: &syn::PathSegment) -> Option<Travel> {
        let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
        let types: Vec<&Type> = arguments
            .args
            .iter()
            .filter_map(|argument| if let GenericArgument::Type(ty) = argument { Some(ty) } else { None })
            .collect();
        let as_vec = || Some(quote!(::atoll::private::rkyv::with::AsVec));
        match (segment.ident.to_string().as_str(), types.as_slice()) {
            ("BTreeMap" | "HashMap", [key, value, ..]) => {
                Some(Travel { with: as_vec(), schema: quote!(::atoll::private::schema::map::<#key, #value>()) })
            }
            ("BTreeSet" | "HashSet", [element, ..]) => {
                Some(Travel { with: as_vec(), schema: quote!(::atoll::private::schema::set::<#element>()) })
            }
            (outer @ ("Option" | "Vec"), [inner]) => {
                let inner = Travel::of(inner);
                inner.with.as_ref()?;
                let function = format_ident!("{}", if outer == "Vec" { "sequence" } else { "option" });
                let schema = &inner.schema;
                Some(inner.mapped(quote!(::atoll::private::schema::#function(#schema))))
            }
            _ => None,
        }
    }

    fn mapped(&self, schema: TokenStream) -> Travel {
        let with = &self.with;
        Travel { with: Some(quote!(::atoll::private::rkyv::with::Map<#with>)), schema }
    }
}

/// Whether a type names `item` (or `Self`) as a path of one segment, at any depth.
fn mentions(ty: &Type, item: &Ident) -> bool {
    let names = names(ty.to_token_stream());
    names.iter().any(|name| name.alone && (name.ident == *item || name.ident == "Self"))
}

/// The first `Rc` or `Arc` in a type. The compiler refuses them anyway, at greater length.
fn shared_pointer(ty: &Type) -> Option<Ident> {
    let found = names(ty.to_token_stream()).into_iter().find(|name| name.ident == "Rc" || name.ident == "Arc");
    found.map(|name| name.ident)
}

/// A name in a type; `alone` if it is no part of a longer path.
struct Name {
    ident: Ident,
    alone: bool,
}

/// Every name in a type, at any depth (a type's depth bounds the recursion).
fn names(tokens: TokenStream) -> Vec<Name> {
    let is_separator = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':');
    let mut found = Vec::new();
    let mut after_separator = false;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let before_separator = tokens.peek().is_some_and(is_separator);
        let separator = is_separator(&token);
        match token {
            TokenTree::Group(group) => found.extend(names(group.stream())),
            TokenTree::Ident(ident) => found.push(Name { ident, alone: !after_separator && !before_separator }),
            _ => {}
        }
        after_separator = separator;
    }
    found
}
