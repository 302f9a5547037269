// Package volatilefs gives tests a disk that can lose its power.
package volatilefs
