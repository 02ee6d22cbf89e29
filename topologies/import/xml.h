/* Reads untrusted XML to a tree, by libxml2. Reads nothing outside the text (no network, no DTD),
 * refuses entities, and limits nesting. Only xml.c includes libxml2.
 */
#ifndef TY_XML_H
#define TY_XML_H

#include "ty_core.h"

typedef struct xml_document xml_document;
typedef struct xml_element xml_element; /* valid as long as its document */

/** @param name name of the text in messages */
ty_status xml_parse(const char *text, size_t length, const char *name, xml_document **out,
                    ty_error *error) TY_MUST_CHECK;
void xml_free(xml_document *document);

const xml_element *xml_root(const xml_document *document);
/** The first child element, or NULL; the next sibling element, or NULL. */
const xml_element *xml_first(const xml_element *element);
const xml_element *xml_next(const xml_element *element);
const char *xml_name(const xml_element *element);
bool xml_is(const xml_element *element, const char *name);
/** "" if it is empty, NULL if there is none. */
const char *xml_attribute(const xml_element *element, const char *name);
/** The text of an element before its first child; "" for none. */
const char *xml_text(const xml_element *element);
unsigned xml_line(const xml_element *element);

/** Checks the name of the root element without parsing, for probes. */
bool xml_looks_like(const char *text, size_t length, const char *root);

#endif
