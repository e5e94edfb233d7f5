//! The interactions of an auction site, as RUBiS names and numbers them, and how each is requested.

/// How an interaction is requested. In a path `*` stands for a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// A GET of this path, from any page.
    Path(&'static str),
    /// A GET of a link on the page.
    Link(&'static str),
    /// A POST of a form on the page.
    Form(&'static str),
}

/// Declares the enum from a table of names and ways, in the order of the transition tables.
macro_rules! interactions {
    ($($name:ident => $way:ident($path:literal),)+) => {
        /// One interaction: a state of a session.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[expect(missing_docs, reason = "they are RUBiS's names; `way` says what each is")]
        pub enum Interaction {
            $($name,)+
        }

        impl Interaction {
            /// All, in the order of the transition tables.
            pub const ALL: [Interaction; [$($path),+].len()] = [$(Interaction::$name),+];

            /// Its name, as pages state it in `data-interaction`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Interaction::$name => stringify!($name),)+
                }
            }

            /// The requests of `demo/auction/PAGES.md`.
            pub(super) const fn way(self) -> Way {
                match self {
                    $(Interaction::$name => Way::$way($path),)+
                }
            }
        }
    };
}

interactions! {
    Home => Path("/"),
    Register => Path("/register"),
    RegisterUser => Form("/register"),
    Browse => Path("/browse"),
    BrowseCategories => Path("/categories"),
    SearchItemsInCategory => Link("/categories/*/items"),
    BrowseRegions => Path("/regions"),
    BrowseCategoriesInRegion => Link("/regions/*/categories"),
    SearchItemsInRegion => Link("/regions/*/categories/*/items"),
    ViewItem => Link("/items/*"),
    ViewUserInfo => Link("/users/*"),
    ViewBidHistory => Link("/items/*/bids"),
    BuyNowAuth => Link("/items/*/buy/sign-in"),
    BuyNow => Form("/items/*/buy"),
    StoreBuyNow => Form("/items/*/purchases"),
    PutBidAuth => Link("/items/*/bid/sign-in"),
    PutBid => Form("/items/*/bid"),
    StoreBid => Form("/items/*/bids"),
    PutCommentAuth => Link("/items/*/comment/sign-in"),
    PutComment => Form("/items/*/comment"),
    StoreComment => Form("/items/*/comments"),
    Sell => Path("/sell"),
    SelectCategoryToSellItem => Form("/sell/categories"),
    SellItemForm => Link("/sell/categories/*"),
    RegisterItem => Form("/items"),
    AboutMeAuth => Path("/me/sign-in"),
    AboutMe => Form("/me"),
}

impl Interaction {
    /// How many there are.
    pub const COUNT: usize = Interaction::ALL.len();

    /// Whether it changes what is stored.
    pub const fn is_write(self) -> bool {
        use Interaction::{RegisterItem, RegisterUser, StoreBid, StoreBuyNow, StoreComment};
        matches!(self, RegisterUser | StoreBuyNow | StoreBid | StoreComment | RegisterItem)
    }
}
