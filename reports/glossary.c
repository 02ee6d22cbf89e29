/* The words of a page that are no everyday words: the rows of docs/reference/glossary.md that it
 * uses. */
#include "html.h"
#include "page.h"

#include "ty_memory.h"

#include <ctype.h>
#include <string.h>

/* A row of the glossary, "| word, other word (note) | meaning |". */
typedef struct entry {
    const char *words, *meaning;
    size_t words_length, meaning_length;
} entry;

/* The next row from *at on; false: there is none. */
static bool next_entry(const char **at, entry *out)
{
    static const char bar[] = " | ", last[] = " |";

    for (const char *line = *at, *end; *line != '\0'; line = end + (*end == '\n')) {
        const char *middle, *close;
        end = line + strcspn(line, "\n");
        if (strncmp(line, "| ", 2) != 0 || strncmp(line, "| word |", 8) == 0 ||
            strncmp(line, "| --- |", 7) == 0)
            continue;
        middle = strstr(line, bar);
        close = end - strlen(last);
        if (middle == NULL || middle >= close || strncmp(close, last, strlen(last)) != 0)
            continue;
        *out = (entry){.words = line + 2,
                       .words_length = (size_t)(middle - line) - 2,
                       .meaning = middle + strlen(bar),
                       .meaning_length = (size_t)(close - middle) - strlen(bar)};
        *at = end + (*end == '\n');
        return true;
    }
    return false;
}

/* Whether a text has a word, or its plural; both in small letters. */
static bool has_word(const char *text, const char *word)
{
    const size_t length = strlen(word);

    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        const char *end = at + length;
        end += *end == 's' ? 1 : strncmp(end, "es", 2) == 0 ? 2 : 0;
        if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)*end))
            return true;
    }
    return false;
}

/* Whether one of an entry's words, which commas part and notes in brackets follow, is used. */
static bool is_used(const entry *e, const char *text)
{
    char word[64];
    size_t length = 0;

    for (size_t i = 0; i <= e->words_length; i++) {
        const char c = e->words[i];
        if (i == e->words_length || c == ',' || c == '(') {
            while (length > 0 && word[length - 1] == ' ')
                length--;
            word[length] = '\0';
            if (length > 0 && has_word(text, word))
                return true;
            if (c == '(')
                return false;
            length = 0;
        } else if ((length > 0 || c != ' ') && length + 1 < sizeof word) {
            word[length++] = (char)tolower((unsigned char)c);
        }
    }
    return false;
}

/* Markdown of a cell: only `code` is in it. */
static void put_cell(page *p, const char *text, size_t length, bool is_word)
{
    bool is_code = false;

    ty_text_add(p->html, is_word ? "<td class=\"text\"><dfn>" : "<td class=\"why\">");
    for (size_t i = 0; i < length; i++) {
        const char one[2] = {text[i], '\0'};
        if (text[i] != '`') {
            ty_html_escape(p->html, one);
            continue;
        }
        is_code = !is_code;
        ty_text_add(p->html, is_code ? "<code>" : "</code>");
    }
    ty_text_add(p->html, is_word ? "</dfn></td>" : "</td>");
}

ty_status ty_page_glossary(page *p, const ty_text *verdict, ty_error *error)
{
    const size_t length = verdict->length + p->html->length;
    char *text = ty_alloc(length + 1, 1);
    const char *at = ty_page_glossary_text;
    bool is_any = false;
    entry e;

    if (text == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a report");
    for (size_t i = 0; i < length; i++)
        text[i] = (char)tolower((unsigned char)(i < verdict->length
                                                    ? verdict->data[i]
                                                    : p->html->data[i - verdict->length]));
    while (next_entry(&at, &e)) {
        if (!is_used(&e, text))
            continue;
        if (!is_any) {
            ty_page_section(p, "words", "The words of this page");
            ty_page_table(p, "<word|<meaning");
        }
        is_any = true;
        ty_page_row(p);
        put_cell(p, e.words, e.words_length, true);
        put_cell(p, e.meaning, e.meaning_length, false);
        ty_page_end_row(p);
    }
    if (is_any)
        ty_page_end_table(p);
    ty_free(text);
    return TY_OK;
}
