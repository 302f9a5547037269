package trypage

var Page, Style, Script = &text, &style, &script
