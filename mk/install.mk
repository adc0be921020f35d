# Installation: the program, its models and recipes, completions, the manual page.
PREFIX ?= /usr/local
.PHONY: install uninstall
install: found $(BUILD)/launcher
	@mk/install $(BUILD) "$(PREFIX)" "$(DESTDIR)"
uninstall:
	@mk/install --remove "$(PREFIX)" "$(DESTDIR)"
