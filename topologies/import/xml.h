/* Reading XML of others: a tree, by libxml2. Nothing outside the text is looked at (no network, no
 * DTD), entities are refused, and nesting is bounded. The only file that includes libxml2 is xml.c.
 */
#ifndef TY_XML_H
#define TY_XML_H

#include "ty_core.h"

typedef struct xml_document xml_document;
typedef struct xml_element xml_element; /* valid as long as its document */

/** @param name what messages call the text */
ty_status xml_parse(const char *text, size_t length, const char *name, xml_document **out,
                    ty_error *error) TY_MUST_CHECK;
void xml_free(xml_document *document);

const xml_element *xml_root(const xml_document *document);
/** The first child element, or NULL; the next sibling element, or NULL. */
const xml_element *xml_first(const xml_element *element);
const xml_element *xml_next(const xml_element *element);
const char *xml_name(const xml_element *element);
bool xml_is(const xml_element *element, const char *name);
/** "" where it is empty, NULL where there is none. */
const char *xml_attribute(const xml_element *element, const char *name);
/** The text right in an element, up to the first child; "" for none. */
const char *xml_text(const xml_element *element);
unsigned xml_line(const xml_element *element);

/** Name of the root element of what looks like XML, without parsing: for probes. */
bool xml_looks_like(const char *text, size_t length, const char *root);

#endif
