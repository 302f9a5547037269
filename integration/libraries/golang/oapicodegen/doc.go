// Package oapicodegen has what oapi-codegen makes of openapi.json, which ../build adds.
package oapicodegen

import _ "github.com/oapi-codegen/runtime" // which generated code imports
