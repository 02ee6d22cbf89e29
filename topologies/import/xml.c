/* XML by libxml2. */
#include "xml.h"

#include <ctype.h>
#include <libxml/parser.h>
#include <libxml/tree.h>
#include <string.h>

/* An xml_document is an xmlDoc, an xml_element an xmlNode: the types hide libxml2.
 */
static const xmlNode *node_of(const xml_element *element)
{
    return (const xmlNode *)(const void *)element;
}

static const xml_element *element_of(const xmlNode *node)
{
    return (const xml_element *)(const void *)node;
}

/* The text is read as UTF-8, whatever it declares. Without NUL and beginning with "<", it has none
 * of the encodings that libxml2 detects, so check_text sees all of it.
 */
static bool is_ascii_like(const char *text, size_t length)
{
    size_t at = 0;

    ty_skip_mark(&text, &length);
    while (at < length && isspace((unsigned char)text[at]))
        at++;
    return (at == length || text[at] == '<') && memchr(text, '\0', length) == NULL;
}

/* Entities enable XML bombs; no supported format declares any. */
static ty_status check_text(const char *text, size_t length, const char *name, ty_error *error)
{
    static const char entity[] = "<!ENTITY";

    if (length > (size_t)1 << 30)
        return ty_fail(error, TY_EPARSE, "%.200s: found %zu bytes, expected at most 1 GiB", name,
                       length);
    if (!is_ascii_like(text, length))
        return ty_fail(error, TY_EPARSE,
                       "%.200s: found a NUL character, or no \"<\" first, expected XML in UTF-8",
                       name);
    for (const char *at = text, *end = text + length;
         (at = memchr(at, '<', (size_t)(end - at))) != NULL; at++)
        if ((size_t)(end - at) >= sizeof entity - 1 && memcmp(at, entity, sizeof entity - 1) == 0)
            return ty_fail(error, TY_EPARSE,
                           "%.200s: found the declaration of an entity, expected XML without any",
                           name);
    return TY_OK;
}

static ty_status fail_with(const xmlParserCtxt *context, const char *name, ty_error *error)
{
    const xmlError *cause = &context->lastError;
    char message[160] = "no document";
    size_t length;

    if (cause->message != NULL)
        snprintf(message, sizeof message, "%s", cause->message);
    length = strlen(message);
    while (length > 0 && isspace((unsigned char)message[length - 1]))
        message[--length] = '\0';
    for (size_t i = 0; i < length; i++) /* it may quote binary bytes */
        if ((unsigned char)message[i] < ' ' || (unsigned char)message[i] > '~')
            message[i] = '?';
    /* malformed text has a code; an early lack of memory has none */
    if (context->errNo == XML_ERR_NO_MEMORY || cause->code == XML_ERR_NO_MEMORY ||
        cause->code == XML_ERR_OK)
        return ty_fail(error, TY_ENOMEM, "out of memory for XML");
    return ty_fail(error, TY_EPARSE, "%.200s:%d: found malformed XML (%s), expected well-formed",
                   name, cause->line, message);
}

/* Without a handler, libxml2 prints errors without a context, such as a lack of memory. */
static void keep_quiet(void *unused, xmlError *error)
{
    (void)unused;
    (void)error;
}

static ty_status parse(const char *text, size_t length, const char *name, xml_document **out,
                       ty_error *error)
{
    xmlParserCtxt *context = xmlNewParserCtxt();
    xmlDoc *document;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(context != NULL, error));
    document = xmlCtxtReadMemory(context, text, (int)length, NULL, NULL,
                                 XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING |
                                     XML_PARSE_NOCDATA | XML_PARSE_IGNORE_ENC);
    if (document == NULL || xmlDocGetRootElement(document) == NULL ||
        context->errNo == XML_ERR_NO_MEMORY) { /* text may be missing without an error */
        status = fail_with(context, name, error);
        xmlFreeDoc(document);
    } else {
        *out = (xml_document *)(void *)document;
    }
    xmlFreeParserCtxt(context);
    return status;
}

ty_status xml_parse(const char *text, size_t length, const char *name, xml_document **out,
                    ty_error *error)
{
    xmlStructuredErrorFunc handler = xmlStructuredError;
    void *handler_context = xmlStructuredErrorContext;
    ty_status status = TY_OK;

    TY_TRY(check_text(text, length, name, error));
    xmlSetStructuredErrorFunc(NULL, keep_quiet);
    status = parse(text, length, name, out, error);
    if (status == TY_EPARSE) /* maybe a lack of memory, which the retry shows */
        status = parse(text, length, name, out, error);
    xmlSetStructuredErrorFunc(handler_context, handler);
    xmlResetLastError(); /* it holds copies of names */
    return status;
}

void xml_free(xml_document *document)
{
    xmlFreeDoc((xmlDoc *)(void *)document);
}

const xml_element *xml_root(const xml_document *document)
{
    return element_of(xmlDocGetRootElement((const xmlDoc *)(const void *)document));
}

static const xml_element *first_element(const xmlNode *node)
{
    while (node != NULL && node->type != XML_ELEMENT_NODE)
        node = node->next;
    return element_of(node);
}

const xml_element *xml_first(const xml_element *element)
{
    return first_element(node_of(element)->children);
}

const xml_element *xml_next(const xml_element *element)
{
    return first_element(node_of(element)->next);
}

const char *xml_name(const xml_element *element)
{
    return (const char *)node_of(element)->name;
}

bool xml_is(const xml_element *element, const char *name)
{
    return strcmp(xml_name(element), name) == 0;
}

static const char *content_of(const xmlNode *node)
{
    return node != NULL && node->type == XML_TEXT_NODE && node->content != NULL
               ? (const char *)node->content
               : "";
}

const char *xml_attribute(const xml_element *element, const char *name)
{
    for (const xmlAttr *a = node_of(element)->properties; a != NULL; a = a->next)
        if (strcmp((const char *)a->name, name) == 0)
            return content_of(a->children);
    return NULL;
}

const char *xml_text(const xml_element *element)
{
    return content_of(node_of(element)->children);
}

unsigned xml_line(const xml_element *element)
{
    long line = xmlGetLineNo(node_of(element));
    return line > 0 ? (unsigned)line : 0;
}

/* The first tag that is neither a declaration nor a comment. */
bool xml_looks_like(const char *text, size_t length, const char *root)
{
    const char *at = text, *end = text + length;
    size_t size = strlen(root);

    while ((at = memchr(at, '<', (size_t)(end - at))) != NULL) {
        if (end - at >= 4 && memcmp(at, "<!--", 4) == 0) {
            for (at += 4; end - at >= 3 && memcmp(at, "-->", 3) != 0; at++)
                continue;
        } else if (end - at >= 2 && (at[1] == '?' || at[1] == '!')) {
            at++;
        } else {
            at++;
            return (size_t)(end - at) > size && memcmp(at, root, size) == 0 &&
                   (isspace((unsigned char)at[size]) || at[size] == '>' || at[size] == '/');
        }
    }
    return false;
}
