// The types of a package, checked from the sources of it and of what it imports, for the system that
// GOOS names: what go build finds wrong, without compiling Go's own library for that system.  Its
// argument is the package.

package main

import (
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"log"
	"os"
	"path/filepath"
)

func main() {
	// there is no C compiler for other systems
	build.Default.CgoEnabled = false
	found, err := build.Import(os.Args[1], "", 0)
	if err != nil {
		log.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range found.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(found.Dir, name), nil, 0)
		if err != nil {
			log.Fatal(err)
		}
		files = append(files, file)
	}
	config := types.Config{
		Importer: importer.ForCompiler(fset, "source", nil),
		Sizes:    types.SizesFor("gc", build.Default.GOARCH),
		Error:    func(err error) { log.Print(err) },
	}
	if _, err := config.Check(os.Args[1], fset, files, nil); err != nil {
		os.Exit(1)
	}
}
