//! The interactions of an auction site, as RUBiS names and numbers them, and how each is requested.

/// One interaction: a state of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "they are RUBiS's names; `way` says what each is")]
pub enum Interaction {
    Home,
    Register,
    RegisterUser,
    Browse,
    BrowseCategories,
    SearchItemsInCategory,
    BrowseRegions,
    BrowseCategoriesInRegion,
    SearchItemsInRegion,
    ViewItem,
    ViewUserInfo,
    ViewBidHistory,
    BuyNowAuth,
    BuyNow,
    StoreBuyNow,
    PutBidAuth,
    PutBid,
    StoreBid,
    PutCommentAuth,
    PutComment,
    StoreComment,
    Sell,
    SelectCategoryToSellItem,
    SellItemForm,
    RegisterItem,
    AboutMeAuth,
    AboutMe,
}

use Interaction::{
    AboutMe, AboutMeAuth, Browse, BrowseCategories, BrowseCategoriesInRegion, BrowseRegions, BuyNow,
    BuyNowAuth, Home, PutBid, PutBidAuth, PutComment, PutCommentAuth, Register, RegisterItem, RegisterUser,
    SearchItemsInCategory, SearchItemsInRegion, SelectCategoryToSellItem, Sell, SellItemForm, StoreBid,
    StoreBuyNow, StoreComment, ViewBidHistory, ViewItem, ViewUserInfo,
};

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

impl Interaction {
    /// How many there are.
    pub const COUNT: usize = Interaction::ALL.len();

    /// All, in the order of the transition tables.
    pub const ALL: [Interaction; 27] = [
        Home,
        Register,
        RegisterUser,
        Browse,
        BrowseCategories,
        SearchItemsInCategory,
        BrowseRegions,
        BrowseCategoriesInRegion,
        SearchItemsInRegion,
        ViewItem,
        ViewUserInfo,
        ViewBidHistory,
        BuyNowAuth,
        BuyNow,
        StoreBuyNow,
        PutBidAuth,
        PutBid,
        StoreBid,
        PutCommentAuth,
        PutComment,
        StoreComment,
        Sell,
        SelectCategoryToSellItem,
        SellItemForm,
        RegisterItem,
        AboutMeAuth,
        AboutMe,
    ];

    /// Its name, as pages state it in `data-interaction`.
    pub const fn name(self) -> &'static str {
        match self {
            Home => "Home",
            Register => "Register",
            RegisterUser => "RegisterUser",
            Browse => "Browse",
            BrowseCategories => "BrowseCategories",
            SearchItemsInCategory => "SearchItemsInCategory",
            BrowseRegions => "BrowseRegions",
            BrowseCategoriesInRegion => "BrowseCategoriesInRegion",
            SearchItemsInRegion => "SearchItemsInRegion",
            ViewItem => "ViewItem",
            ViewUserInfo => "ViewUserInfo",
            ViewBidHistory => "ViewBidHistory",
            BuyNowAuth => "BuyNowAuth",
            BuyNow => "BuyNow",
            StoreBuyNow => "StoreBuyNow",
            PutBidAuth => "PutBidAuth",
            PutBid => "PutBid",
            StoreBid => "StoreBid",
            PutCommentAuth => "PutCommentAuth",
            PutComment => "PutComment",
            StoreComment => "StoreComment",
            Sell => "Sell",
            SelectCategoryToSellItem => "SelectCategoryToSellItem",
            SellItemForm => "SellItemForm",
            RegisterItem => "RegisterItem",
            AboutMeAuth => "AboutMeAuth",
            AboutMe => "AboutMe",
        }
    }

    /// Whether it changes what is stored.
    pub const fn is_write(self) -> bool {
        matches!(self, RegisterUser | StoreBuyNow | StoreBid | StoreComment | RegisterItem)
    }

    /// The requests of `demo/auction/PAGES.md`.
    pub(super) const fn way(self) -> Way {
        use Way::{Form, Link, Path};
        match self {
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
    }
}
