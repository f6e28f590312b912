//! One field: how it is archived and what it adds to the schema.
//!
//! Called by the derive for each field of a struct or variant. Maps and sets are recognized by the last segment of
//! their path, since a macro sees names and not types; one behind an alias is refused by the compiler (no `Wire` impl).

use proc_macro2::TokenStream;
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
        let travel = Travel::of(&field.ty);
        Ok(FieldPlan {
            field,
            name: field.ident.as_ref().map_or_else(|| at.to_string(), plain),
            binding: format_ident!("field_{at}"),
            schema: travel.schema,
            with: travel.with,
        })
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
    fn any(tokens: TokenStream, item: &Ident) -> bool {
        let mut after_path_separator = false;
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            let found = match &token {
                proc_macro2::TokenTree::Group(group) => any(group.stream(), item),
                proc_macro2::TokenTree::Ident(name) => {
                    let first = matches!(tokens.peek(), Some(proc_macro2::TokenTree::Punct(next)) if next.as_char() == ':');
                    !after_path_separator && !first && (name == item || name == "Self")
                }
                _ => false,
            };
            if found {
                return true;
            }
            after_path_separator = matches!(&token, proc_macro2::TokenTree::Punct(punct) if punct.as_char() == ':');
        }
        false
    }
    any(ty.to_token_stream(), item)
}
