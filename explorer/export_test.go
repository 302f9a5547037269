package explorer

var Page, Style, Script = &page, &style, &script
