from lakemirror.cli.main import main

main()
