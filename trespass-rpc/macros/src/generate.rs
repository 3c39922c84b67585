//! Generates the client and the server for a trait.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::meta::ParseNestedMeta;
use syn::{Error, ItemTrait, LitStr, Path, Result, ReturnType, TraitItem};

use crate::method::{ArgumentKind, Method, item_type};

/// The arguments of the attribute.
#[derive(Default)]
pub(crate) struct Options {
    name: Option<LitStr>,
    codec: Option<Path>,
}

impl Options {
    pub(crate) fn parse(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        if meta.path.is_ident("name") {
            self.name = Some(meta.value()?.parse()?);
        } else if meta.path.is_ident("codec") {
            self.codec = Some(meta.value()?.parse()?);
        } else {
            return Err(meta.error("expected `name = \"…\"` or `codec = …`"));
        }
        Ok(())
    }
}

pub(crate) fn service(options: &Options, mut item: ItemTrait) -> Result<TokenStream> {
    let name = item.ident.clone();
    let mut methods = Vec::new();
    for method in &mut item.items {
        let TraitItem::Fn(method) = method else {
            return Err(Error::new_spanned(
                method,
                "the trait of a service may contain only methods; move other items out",
            ));
        };
        methods.push(Method::parse(method)?);
        desugar(method);
    }
    if methods.is_empty() {
        return Err(Error::new_spanned(&item.ident, "a service needs at least one method; add one"));
    }
    // A program may use only the client, or only the server.
    item.attrs.push(
        syn::parse_quote!(#[allow(dead_code, reason = "the program may use only the client, or only the server")]),
    );
    item.supertraits.push(syn::parse_quote!(::core::marker::Send));
    item.supertraits.push(syn::parse_quote!(::core::marker::Sync));
    item.supertraits.push(syn::parse_quote!('static));
    let codec = options.codec.as_ref().map_or_else(|| quote!(::trespass_rpc::Postcard), |codec| quote!(#codec));
    let service = options.name.as_ref().map_or_else(|| name.to_string(), LitStr::value);
    let table = table(&service, &methods);
    let server = server(&item, &codec, &table, &methods)?;
    let client = client(&item, &codec, &table, &methods)?;
    Ok(quote!(#item #server #client))
}

/// Converts an `async fn` to a function that returns a `Send` future. The returned streams become `Send` too.
fn desugar(method: &mut syn::TraitItemFn) {
    let ReturnType::Type(_, output) = &mut method.sig.output else { return };
    if method.sig.asyncness.take().is_some() {
        **output = syn::parse_quote!(impl ::core::future::Future<Output = #output> + ::core::marker::Send);
    } else if let syn::Type::ImplTrait(bounds) = &mut **output {
        bounds.bounds.push(syn::parse_quote!(::core::marker::Send));
    }
}

fn table(service: &str, methods: &[Method]) -> TokenStream {
    let rows = methods.iter().map(|method| {
        let (name, shape, is_idempotent) = (format!("{service}/{}", method.name), &method.shape, method.is_idempotent);
        quote! {
            ::trespass_rpc::MethodInfo {
                name: #name,
                id: ::trespass_rpc::generated::hash(#name),
                shape: ::trespass_rpc::generated::hash(#shape),
                is_idempotent: #is_idempotent,
            }
        }
    });
    quote!(&[#(#rows),*])
}

fn server(item: &ItemTrait, codec: &TokenStream, table: &TokenStream, methods: &[Method]) -> Result<TokenStream> {
    let (visibility, name) = (&item.vis, &item.ident);
    let server = format_ident!("{name}Server");
    let doc =
        format!("Serves an implementation of [`{name}`]: a [`Handler`](trespass_rpc::Handler), and a `tower` service.");
    let arms = methods.iter().enumerate().map(|(index, method)| {
        let (types, names, function) = (method.value_types(), method.value_names(), &method.name);
        let rest = method.arguments.iter().filter(|argument| argument.kind != ArgumentKind::Value);
        let rest = rest.map(|argument| {
            let name = &argument.name;
            Ok(match argument.kind {
                ArgumentKind::Items => {
                    let item = item_type(&argument.ty)?;
                    quote!(let #name = ::trespass_rpc::Items::<#item>::of::<#codec>(&cx);)
                }
                ArgumentKind::Attachment => quote! {
                    let #name = match cx.take_attachment() {
                        ::core::result::Result::Ok(found) => found,
                        ::core::result::Result::Err(response) => return response,
                    };
                },
                _ => quote! {
                    let #name = match cx.take_target() {
                        ::core::result::Result::Ok(found) => found,
                        ::core::result::Result::Err(response) => return response,
                    };
                },
            })
        });
        let rest = rest.collect::<Result<Vec<_>>>()?;
        let context = method.has_context.then(|| quote!(&cx,));
        let passed = method.arguments.iter().map(|argument| &argument.name);
        let call = quote!(#name::#function(&*self.0, #context #(#passed),*));
        let (value, error) = (&method.value, &method.error);
        let answer = if method.is_streaming {
            quote!(::trespass_rpc::generated::answer_stream::<#codec, #value, #error>(&cx, #call).await)
        } else {
            quote!(::trespass_rpc::Response::of::<#codec, #value, #error>(&#call.await))
        };
        let decode = quote!(cx.decode::<#codec, #types>(&body));
        let decode = if method.of_kind(ArgumentKind::Value).next().is_none() {
            quote!(if let ::core::result::Result::Err(response) = #decode { return response; })
        } else {
            quote! {
                let #names: #types = match #decode {
                    ::core::result::Result::Ok(arguments) => arguments,
                    ::core::result::Result::Err(response) => return response,
                };
            }
        };
        Ok(quote! {
            method if method == Self::METHODS[#index].id => {
                #decode
                #(#rest)*
                #answer
            }
        })
    });
    let arms = arms.collect::<Result<Vec<_>>>()?;
    Ok(quote! {
        #[doc = #doc]
        #[derive(Debug)]
        #visibility struct #server<S>(::std::sync::Arc<S>);

        impl<S> ::core::clone::Clone for #server<S> {
            fn clone(&self) -> Self {
                Self(::std::sync::Arc::clone(&self.0))
            }
        }

        impl<S: #name> #server<S> {
            /// The methods.
            pub const METHODS: &'static [::trespass_rpc::MethodInfo] = #table;

            /// Creates a server from an implementation.
            pub fn new(service: S) -> Self {
                Self(::std::sync::Arc::new(service))
            }

            /// Creates a server from an implementation that the program also uses itself.
            pub fn shared(service: ::std::sync::Arc<S>) -> Self {
                Self(service)
            }
        }

        impl<S: #name> ::trespass_rpc::Handler for #server<S> {
            fn methods(&self) -> ::std::vec::Vec<::trespass_rpc::MethodInfo> {
                Self::METHODS.to_vec()
            }

            async fn call(&self, request: ::trespass_rpc::Request) -> ::trespass_rpc::Response {
                let (method, (mut cx, body)) = (request.method(), request.into_parts());
                let _ = &mut cx;
                match method {
                    #(#arms)*
                    _ => ::trespass_rpc::Response::unimplemented(),
                }
            }
        }

        impl<S: #name> ::trespass_rpc::generated::Service<::trespass_rpc::Request> for #server<S> {
            type Response = ::trespass_rpc::Response;
            type Error = ::core::convert::Infallible;
            type Future = ::core::pin::Pin<::std::boxed::Box<
                dyn ::core::future::Future<Output = ::core::result::Result<Self::Response, Self::Error>> + ::core::marker::Send,
            >>;

            fn poll_ready(
                &mut self,
                _: &mut ::core::task::Context<'_>,
            ) -> ::core::task::Poll<::core::result::Result<(), Self::Error>> {
                ::core::task::Poll::Ready(::core::result::Result::Ok(()))
            }

            fn call(&mut self, request: ::trespass_rpc::Request) -> Self::Future {
                let server = ::core::clone::Clone::clone(self);
                ::std::boxed::Box::pin(async move {
                    ::core::result::Result::Ok(::trespass_rpc::Handler::call(&server, request).await)
                })
            }
        }
    })
}

fn client(item: &ItemTrait, codec: &TokenStream, table: &TokenStream, methods: &[Method]) -> Result<TokenStream> {
    let (visibility, name) = (&item.vis, &item.ident);
    let client = format_ident!("{name}Client");
    let doc = format!("Calls a server of [`{name}`], over a channel or any `tower` service on one.");
    let functions = methods.iter().enumerate().map(|(index, method)| {
        let (function, docs, names) = (&method.name, &method.docs, method.value_names());
        let types = method.value_types();
        let arguments = method.arguments.iter().map(|argument| {
            let (name, ty) = (&argument.name, &argument.ty);
            Ok(if argument.kind == ArgumentKind::Items {
                let item = item_type(ty)?;
                quote!(#name: impl ::trespass_rpc::Stream<Item = #item> + ::core::marker::Send + 'static)
            } else {
                quote!(#name: #ty)
            })
        });
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        let rest = method.arguments.iter().filter(|argument| argument.kind != ArgumentKind::Value).map(|argument| {
            let name = &argument.name;
            match argument.kind {
                ArgumentKind::Items => quote!(::trespass_rpc::generated::set_items::<#codec, _>(&mut call, #name);),
                ArgumentKind::Attachment => quote!(call.attach(#name);),
                _ => quote!(call.target(#name);),
            }
        });
        let (value, error) = (&method.value, &method.error);
        let begin = quote!(let mut call = self.options.call(&Self::METHODS[#index]););
        let encode = quote!(call.encode::<#codec, #types>(&#names));
        Ok(if method.is_streaming {
            quote! {
                #(#docs)*
                pub fn #function(&self, #(#arguments),*) -> ::trespass_rpc::Answers<#codec, #value, #error>
                where
                    T: ::core::marker::Send + 'static,
                    T::Future: ::core::marker::Send,
                {
                    #begin
                    if let ::core::result::Result::Err(error) = #encode {
                        return ::trespass_rpc::Answers::failed(error);
                    }
                    #(#rest)*
                    ::trespass_rpc::generated::streaming(::core::clone::Clone::clone(&self.channel), call)
                }
            }
        } else {
            quote! {
                #(#docs)*
                pub async fn #function(
                    &self,
                    #(#arguments),*
                ) -> ::core::result::Result<#value, ::trespass_rpc::Error<#error>> {
                    #begin
                    #encode?;
                    #(#rest)*
                    ::trespass_rpc::generated::unary::<#codec, _, _, _>(::core::clone::Clone::clone(&self.channel), call).await
                }
            }
        })
    });
    let functions = functions.collect::<Result<Vec<_>>>()?;
    Ok(quote! {
        #[doc = #doc]
        #[derive(Clone, Debug)]
        #visibility struct #client<T = ::trespass_rpc::Channel> {
            channel: T,
            options: ::trespass_rpc::CallOptions,
        }

        impl #client {
            /// Connects in the current tokio runtime: over RDMA if both sides support it, otherwise over TCP.
            ///
            /// # Errors
            ///
            /// No server listens at the address, or the server declares a method with different types.
            pub async fn connect(address: &str) -> ::std::io::Result<Self> {
                Self::over(::trespass_rpc::Channel::connect(address).await?)
            }

            /// Creates a client that uses a connection.
            ///
            /// # Errors
            ///
            /// A method has different types at the peer.
            pub fn over(channel: ::trespass_rpc::Channel) -> ::std::io::Result<Self> {
                channel.check(Self::METHODS).map_err(::std::io::Error::other)?;
                ::core::result::Result::Ok(Self::new(channel))
            }

            /// Returns the connection's transport, and the reason for it.
            pub fn transport(&self) -> &::trespass_rpc::TransportInfo {
                self.channel.transport()
            }

            /// The connection.
            pub fn channel(&self) -> &::trespass_rpc::Channel {
                &self.channel
            }
        }

        impl<T> #client<T> {
            /// The methods.
            pub const METHODS: &'static [::trespass_rpc::MethodInfo] = #table;

            /// Creates a client that uses a `tower` service.
            pub fn new(channel: T) -> Self {
                Self { channel, options: ::core::default::Default::default() }
            }

            /// Returns the client with other options for its calls.
            #[must_use]
            pub fn with(mut self, options: ::trespass_rpc::CallOptions) -> Self {
                self.options = options;
                self
            }
        }

        impl<T> #client<T>
        where
            T: ::trespass_rpc::generated::Service<::trespass_rpc::Call, Response = ::trespass_rpc::Reply>
                + ::core::clone::Clone,
            T::Error: ::core::convert::Into<::trespass_rpc::BoxError>,
        {
            #(#functions)*
        }
    })
}
