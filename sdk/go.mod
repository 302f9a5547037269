// These clients are to copy. As they are a module, they are not in the zip of the module storefront, which
// everyone downloads who imports it.
module example.com/storefront/clients
