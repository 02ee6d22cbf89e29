/* Storage in a description: the words storage=NAME and storage=NAME{KEY=VALUE,...}, caches first.
 */
#ifndef TY_DESCRIBE_STORAGE_H
#define TY_DESCRIBE_STORAGE_H

#include "catalogue.h"

/** Whether a text has such a word. */
bool storage_is_described(const char *text);
/** The description without these words. @param line [out] free with ty_free */
ty_status storage_without(const char *text, char **line, ty_error *error) TY_MUST_CHECK;

#endif
