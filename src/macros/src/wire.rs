//! `#[derive(atoll::Wire)]`.
//!
//! A derive cannot add rkyv's derives to the item, so the made code holds a private twin with the same fields, on which
//! rkyv derives *remote* implementations, and forwards the real type's implementations to the twin. The archived type
//! stands beside the real one, made here, so that it carries the real type's name and visibility.

mod field;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Ident, Result};

use self::field::FieldPlan;

/// What an archived enum can count: its tag is one byte.
const VARIANTS_MAX: usize = 256;

/// The fields of a struct or of one variant, with what each needs.
struct Shape<'a> {
    fields: &'a Fields,
    plans: Vec<FieldPlan<'a>>,
}

pub fn derive(item: &DeriveInput) -> Result<TokenStream> {
    if !item.generics.params.is_empty() {
        return Err(Error::new(
            item.generics.span(),
            "a `Wire` type has no generic parameters: each message needs one schema; write a type per use",
        ));
    }
    match &item.data {
        Data::Struct(data) => {
            let shape = Shape::new(item, &data.fields)?;
            Ok(structure(item, &shape))
        }
        Data::Enum(data) if data.variants.is_empty() => {
            Err(Error::new(item.ident.span(), "an enum without variants cannot be derived; use atoll::Never"))
        }
        Data::Enum(data) if data.variants.len() > VARIANTS_MAX => {
            Err(Error::new(item.ident.span(), "a `Wire` enum has at most 256 variants"))
        }
        Data::Enum(data) => {
            let shapes = data.variants.iter().map(|variant| Shape::new(item, &variant.fields));
            let names: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
            Ok(enumeration(item, &names, &shapes.collect::<Result<Vec<_>>>()?))
        }
        Data::Union(data) => {
            Err(Error::new(data.union_token.span, "a union cannot travel: nothing says which field is valid"))
        }
    }
}

impl<'a> Shape<'a> {
    fn new(item: &DeriveInput, fields: &'a Fields) -> Result<Shape<'a>> {
        let plans = fields.iter().enumerate().map(|(at, field)| FieldPlan::new(&item.ident, at, field));
        Ok(Shape { fields, plans: plans.collect::<Result<_>>()? })
    }

    /// The fields of the twin, with rkyv's attributes.
    fn twin_fields(&self) -> TokenStream {
        let fields = self.plans.iter().map(FieldPlan::twin);
        self.enclose(quote!(#(#fields),*))
    }

    /// The fields of the archived type, visible as in the original (`in_enum`: as the enum itself).
    fn archived_fields(&self, in_enum: bool) -> TokenStream {
        let fields = self.plans.iter().map(|plan| plan.archived(in_enum));
        self.enclose(quote!(#(#fields),*))
    }

    /// A pattern that binds every field, and the expression that rebuilds it from those bindings.
    fn bindings(&self) -> TokenStream {
        let parts = self.plans.iter().map(|plan| {
            let binding = &plan.binding;
            match &plan.field.ident {
                Some(name) => quote!(#name: #binding),
                None => quote!(#binding),
            }
        });
        self.enclose(quote!(#(#parts),*))
    }

    fn enclose(&self, inner: TokenStream) -> TokenStream {
        match self.fields {
            Fields::Named(_) => quote!({ #inner }),
            Fields::Unnamed(_) => quote!((#inner)),
            Fields::Unit => quote!(),
        }
    }

    /// Lets rkyv copy a list of such structs as one piece, if their memory is their archive.
    fn copy_optimization(&self, archived: &Ident) -> Option<TokenStream> {
        if self.plans.is_empty() || self.plans.iter().any(FieldPlan::has_wrapper) {
            return None;
        }
        let rkyv = quote!(::atoll::private::rkyv);
        let types: Vec<_> = self.plans.iter().map(|plan| &plan.field.ty).collect();
        let members = self.fields.members();
        Some(quote! {
            const COPY_OPTIMIZATION: #rkyv::traits::CopyOptimization<Self> = {
                let no_padding = 0 #(+ ::core::mem::size_of::<#types>())* == ::core::mem::size_of::<Self>();
                let same_places =
                    true #(&& ::core::mem::offset_of!(Self, #members) == ::core::mem::offset_of!(#archived, #members))*;
                let same_bytes = true #(&& <#types as #rkyv::Archive>::COPY_OPTIMIZATION.is_enabled())*;
                // SAFETY: enabled only if every byte belongs to a field, each field lies where it lies in the archive,
                // and each field's bytes are its archive's, so the bytes of the whole are those of its archive.
                unsafe { #rkyv::traits::CopyOptimization::enable_if(no_padding && same_places && same_bytes) }
            };
        })
    }

    /// The hash of the fields; `of` is `struct` or `variant`.
    fn schema(&self, of: &str) -> TokenStream {
        let kind = match self.fields {
            Fields::Named(_) => of.to_string(),
            Fields::Unnamed(_) => format!("tuple {of}"),
            Fields::Unit => format!("unit {of}"),
        };
        let fields = self.plans.iter().map(|plan| {
            let (name, schema) = (&plan.name, &plan.schema);
            quote!((#name, #schema))
        });
        quote!(::atoll::private::schema::fields(#kind, &[#(#fields),*]))
    }
}

fn structure(item: &DeriveInput, shape: &Shape<'_>) -> TokenStream {
    let (name, vis, archived) = (&item.ident, &item.vis, archived_name(item));
    let doc = archived_doc(name);
    let end = (!matches!(shape.fields, Fields::Named(_))).then(|| quote!(;));
    let (twin_fields, archived_fields, bindings) =
        (shape.twin_fields(), shape.archived_fields(false), shape.bindings());
    let archived_attributes = archived_attributes();
    let twin_attributes = twin_attributes(name, &archived);
    let forwards = forwards(name, &shape.schema("struct"), shape.copy_optimization(&archived));
    quote! {
        #[doc = #doc]
        #archived_attributes
        #[repr(C)]
        #vis struct #archived #archived_fields #end

        #[doc(hidden)]
        const _: () = {
            #twin_attributes
            pub struct __Twin #twin_fields #end

            #[automatically_derived]
            impl ::core::convert::From<__Twin> for #name {
                fn from(__Twin #bindings: __Twin) -> Self {
                    #name #bindings
                }
            }

            #forwards
        };
    }
}

fn enumeration(item: &DeriveInput, variants: &[&Ident], shapes: &[Shape<'_>]) -> TokenStream {
    let (name, vis, archived) = (&item.ident, &item.vis, archived_name(item));
    let doc = archived_doc(name);
    let docs = variants.iter().map(|variant| format!("The archived form of [`{name}::{variant}`]."));
    let archived_fields = shapes.iter().map(|shape| shape.archived_fields(true));
    let twin_fields = shapes.iter().map(Shape::twin_fields);
    let bindings: Vec<_> = shapes.iter().map(Shape::bindings).collect();
    let archived_attributes = archived_attributes();
    let twin_attributes = twin_attributes(name, &archived);
    let names = variants.iter().map(|variant| field::plain(variant));
    let schemas = shapes.iter().map(|shape| shape.schema("variant"));
    let forwards = forwards(name, &quote!(::atoll::private::schema::fields("enum", &[#((#names, #schemas)),*])), None);
    quote! {
        #[doc = #doc]
        #archived_attributes
        #[repr(u8)]
        #vis enum #archived {
            #(#[doc = #docs] #variants #archived_fields,)*
        }

        #[doc(hidden)]
        const _: () = {
            // The name by which rkyv's derive names the archived variants.
            #[allow(non_camel_case_types)]
            type Archived__Twin = #archived;

            #twin_attributes
            pub enum __Twin {
                #(#variants #twin_fields,)*
            }

            #[automatically_derived]
            impl ::core::convert::From<__Twin> for #name {
                fn from(twin: __Twin) -> Self {
                    match twin {
                        #(__Twin::#variants #bindings => #name::#variants #bindings,)*
                    }
                }
            }

            #forwards
        };
    }
}

fn archived_name(item: &DeriveInput) -> Ident {
    let name = field::plain(&item.ident);
    Ident::new(&format!("Archived{name}"), item.ident.span())
}

fn archived_doc(name: &Ident) -> String {
    format!("The archived form of [`{name}`]: what a received body is read as, in place.")
}

fn archived_attributes() -> TokenStream {
    quote! {
        #[derive(::core::fmt::Debug, ::atoll::private::rkyv::Portable, ::atoll::private::rkyv::bytecheck::CheckBytes)]
        #[rkyv(crate = ::atoll::private::rkyv)]
        #[bytecheck(crate = ::atoll::private::rkyv::bytecheck)]
        #[allow(dead_code)]
    }
}

fn twin_attributes(name: &Ident, archived: &Ident) -> TokenStream {
    quote! {
        #[derive(
            ::atoll::private::rkyv::Archive,
            ::atoll::private::rkyv::Serialize,
            ::atoll::private::rkyv::Deserialize
        )]
        #[rkyv(crate = ::atoll::private::rkyv, remote = #name, as = #archived)]
        #[allow(dead_code)]
    }
}

/// The implementations of the real type, each by the twin's.
fn forwards(name: &Ident, schema: &TokenStream, copy_optimization: Option<TokenStream>) -> TokenStream {
    let (rkyv, serializer, deserializer) = (quote!(::atoll::private::rkyv), format_ident!("__S"), format_ident!("__D"));
    quote! {
        #[automatically_derived]
        impl #rkyv::Archive for #name {
            type Archived = <__Twin as #rkyv::with::ArchiveWith<#name>>::Archived;
            type Resolver = <__Twin as #rkyv::with::ArchiveWith<#name>>::Resolver;

            #copy_optimization

            #[inline]
            fn resolve(&self, resolver: Self::Resolver, out: #rkyv::Place<Self::Archived>) {
                <__Twin as #rkyv::with::ArchiveWith<#name>>::resolve_with(self, resolver, out)
            }
        }

        #[automatically_derived]
        impl<#serializer> #rkyv::Serialize<#serializer> for #name
        where
            #serializer: #rkyv::rancor::Fallible + ?Sized,
            __Twin: #rkyv::with::SerializeWith<#name, #serializer>,
        {
            #[inline]
            fn serialize(
                &self,
                serializer: &mut #serializer,
            ) -> ::core::result::Result<Self::Resolver, <#serializer as #rkyv::rancor::Fallible>::Error> {
                <__Twin as #rkyv::with::SerializeWith<#name, #serializer>>::serialize_with(self, serializer)
            }
        }

        #[automatically_derived]
        impl<#deserializer> #rkyv::Deserialize<#name, #deserializer> for #rkyv::Archived<#name>
        where
            #deserializer: #rkyv::rancor::Fallible + ?Sized,
            __Twin: #rkyv::with::DeserializeWith<#rkyv::Archived<#name>, #name, #deserializer>,
        {
            #[inline]
            fn deserialize(
                &self,
                deserializer: &mut #deserializer,
            ) -> ::core::result::Result<#name, <#deserializer as #rkyv::rancor::Fallible>::Error> {
                <__Twin as #rkyv::with::DeserializeWith<#rkyv::Archived<#name>, #name, #deserializer>>::
                    deserialize_with(self, deserializer)
            }
        }

        #[automatically_derived]
        impl ::atoll::Wire for #name {
            const SCHEMA: u64 = #schema;
        }

        // Evaluated even if nothing encodes the type, so that what its schema refuses is seen where it is declared.
        const _: u64 = <#name as ::atoll::Wire>::SCHEMA;
    }
}
