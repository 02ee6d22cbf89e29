/**
 * @file ty_quote.h
 * Text that came from elsewhere, put where something reads it again: shells, comments, terminals.
 * Names of clusters, hosts and layers, paths and options may be anything; whoever writes them into
 * a file or to a terminal does it through the function of its format. Launch files have the filters
 * of their templates (reports/launch/launch.h), JSON has ty_json_put_string.
 */
#ifndef TY_QUOTE_H
#define TY_QUOTE_H

#include "ty_text.h"

/**
 * Whether a text is UTF-8 that stays where it is written: no controls (C0, DEL, C1), no line or
 * paragraph separators (U+2028, U+2029), no marks that turn the direction of what follows
 * (U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069), no U+FEFF. What files of Trainyard call
 * things is of this kind; all else is refused where it is read.
 */
bool ty_is_printable(const char *text);

/** Bytes of the character at the front of `left` bytes; 0 where ty_is_printable refuses it. */
size_t ty_printable_length(const char *text, size_t left);

/**
 * Appends a text with all that ty_is_printable refuses as escapes: "\x1b", "\u2028"; bytes that
 * are no UTF-8 as "\xff". For comments of files and for terminals.
 * @param kept characters below U+0020 that stay as they are, such as "\n"; "" for none
 */
void ty_quote_visible(ty_text *text, const char *string, const char *kept);

/** Appends one word of a POSIX shell: as it is where that is safe, else in single quotes. */
void ty_quote_shell(ty_text *text, const char *word);

#endif
