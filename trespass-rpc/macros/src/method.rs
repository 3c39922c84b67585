//! One method of the trait.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    Error, FnArg, GenericArgument, Ident, Pat, PathArguments, ReceiverKind, Result, ReturnType, TraitItemFn, Type,
    TypeParamBound,
};

/// The parts of a method from which code is generated.
pub(crate) struct Method {
    pub(crate) name: Ident,
    pub(crate) docs: Vec<syn::Attribute>,
    pub(crate) has_context: bool,
    pub(crate) arguments: Vec<Argument>,
    /// The types of the result: success and error.
    pub(crate) value: Type,
    pub(crate) error: Type,
    /// Whether the answer is a stream.
    pub(crate) is_streaming: bool,
    pub(crate) is_idempotent: bool,
    /// The text of the method's types, as they are written in the source.
    pub(crate) shape: String,
}

pub(crate) struct Argument {
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    pub(crate) kind: ArgumentKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgumentKind {
    Value,
    Attachment,
    Target,
    Items,
}

const FORMS: &str = "a method of a service is `async fn name(&self, cx: &Context, …) -> Result<T, E>` or \
                     `fn name(&self, cx: &Context, …) -> impl Stream<Item = Result<T, E>>`";

impl Method {
    /// Parses a method, and removes the attributes of this macro from it.
    pub(crate) fn parse(item: &mut TraitItemFn) -> Result<Self> {
        let before = item.attrs.len();
        item.attrs.retain(|attribute| !attribute.path().is_ident("idempotent"));
        let is_idempotent = item.attrs.len() != before;
        let signature = &item.sig;
        if !signature.generics.params.is_empty() {
            return Err(Error::new_spanned(
                &signature.generics,
                "a method of a service must not have generic parameters; use concrete types",
            ));
        }
        let mut inputs = signature.inputs.iter();
        match inputs.next() {
            Some(FnArg::Receiver(receiver)) if matches!(receiver.kind, ReceiverKind::Reference(_, _, None)) => {}
            _ => return Err(Error::new_spanned(signature, FORMS)),
        }
        let (mut has_context, mut arguments) = (false, Vec::new());
        for (index, input) in inputs.enumerate() {
            let FnArg::Typed(typed) = input else { return Err(Error::new_spanned(input, FORMS)) };
            if index == 0 && is_context(&typed.ty) {
                has_context = true;
                continue;
            }
            let Pat::Ident(name) = &*typed.pat else {
                return Err(Error::new_spanned(
                    &typed.pat,
                    "an argument of a service's method must be a plain name, not a pattern",
                ));
            };
            let kind = match last(&typed.ty).map(|segment| segment.ident.to_string()).as_deref() {
                Some("Attachment") => ArgumentKind::Attachment,
                Some("Target") => ArgumentKind::Target,
                Some("Items") => ArgumentKind::Items,
                _ => ArgumentKind::Value,
            };
            arguments.push(Argument { name: name.ident.clone(), ty: (*typed.ty).clone(), kind });
        }
        if let Some(second) = arguments.iter().filter(|argument| argument.kind == ArgumentKind::Items).nth(1) {
            return Err(Error::new_spanned(&second.ty, "a method can have only one argument of type `Items`"));
        }
        let ReturnType::Type(_, output) = &signature.output else { return Err(Error::new_spanned(signature, FORMS)) };
        let (result, is_streaming) = match (&signature.asyncness, &**output) {
            (Some(_), output) => (output.clone(), false),
            (None, Type::ImplTrait(bounds)) => {
                let item = bounds.bounds.iter().find_map(stream_item);
                (item.ok_or_else(|| Error::new_spanned(output, FORMS))?, true)
            }
            _ => return Err(Error::new_spanned(signature, FORMS)),
        };
        let (value, error) = result_types(&result).ok_or_else(|| Error::new_spanned(&result, FORMS))?;
        let types = arguments.iter().map(|argument| argument.ty.to_token_stream().to_string());
        let shape = format!(
            "({}) -> {} {}",
            types.collect::<Vec<_>>().join(", "),
            if is_streaming { "stream" } else { "one" },
            result.to_token_stream()
        );
        let docs = item.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect();
        let name = signature.ident.clone();
        Ok(Self { name, docs, has_context, arguments, value, error, is_streaming, is_idempotent, shape })
    }

    pub(crate) fn of_kind(&self, kind: ArgumentKind) -> impl Iterator<Item = &Argument> {
        self.arguments.iter().filter(move |argument| argument.kind == kind)
    }

    /// Combines the types of the arguments that are values. No type gives the unit type, one type gives that type, and
    /// several types give a tuple.
    pub(crate) fn value_types(&self) -> TokenStream {
        let types: Vec<_> = self.of_kind(ArgumentKind::Value).map(|argument| &argument.ty).collect();
        match &types[..] {
            [one] => quote!(#one),
            all => quote!((#(#all),*)),
        }
    }

    pub(crate) fn value_names(&self) -> TokenStream {
        let names: Vec<_> = self.of_kind(ArgumentKind::Value).map(|argument| &argument.name).collect();
        match &names[..] {
            [one] => quote!(#one),
            all => quote!((#(#all),*)),
        }
    }
}

fn last(ty: &Type) -> Option<&syn::PathSegment> {
    match ty {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}

fn is_context(ty: &Type) -> bool {
    matches!(ty, Type::Reference(reference) if last(&reference.elem).is_some_and(|segment| segment.ident == "Context"))
}

fn stream_item(bound: &TypeParamBound) -> Option<Type> {
    let TypeParamBound::Trait(bound) = bound else { return None };
    let segment = bound.path.segments.last().filter(|segment| segment.ident == "Stream")?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::AssocType(item) if item.ident == "Item" => Some(item.ty.clone()),
        _ => None,
    })
}

fn result_types(ty: &Type) -> Option<(Type, Type)> {
    let segment = last(ty).filter(|segment| segment.ident == "Result")?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    let mut types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    });
    Some((types.next()?, types.next()?))
}

/// Returns the type of a stream's items: for `Items<T>`, this is `T`.
pub(crate) fn item_type(ty: &Type) -> Result<Type> {
    let none = || Error::new_spanned(ty, "`Items` needs the type of an item: write `Items<T>`");
    let PathArguments::AngleBracketed(arguments) = &last(ty).ok_or_else(none)?.arguments else { return Err(none()) };
    match arguments.args.first() {
        Some(GenericArgument::Type(item)) => Ok(item.clone()),
        _ => Err(none()),
    }
}
