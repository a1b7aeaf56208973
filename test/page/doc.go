// Package page tests the page for operators (internal/ops/web/files) in headless Chromium, through the DevTools
// protocol: each view, what the cluster's objects may be called, many of them, the keyboard, narrow screens, light and
// dark, and accessibility by axe-core. Without Chromium the tests are skipped.
//
// With -update, the tests write the pictures in docs/page.
package page
