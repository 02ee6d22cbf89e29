/* Common code of catalogue readers: figures and their sources. */
#ifndef TY_CATALOGUE_READ_H
#define TY_CATALOGUE_READ_H

#include "catalogue.h"

/** The sources of an entry, each once: "NVIDIA data sheet; Calculon systems/a100_80g.json".
 */
typedef struct citation {
    const ty_json *sources; /* of the file: key -> text */
    ty_text text;
    const char *seen[16];
    uint32_t count;
} citation;

/** Copies a text into the catalogue. */
ty_status catalogue_copy(const catalogue *c, const char *text, char **out,
                         ty_error *error) TY_MUST_CHECK;
/** Adds the source of `figure`. */
ty_status catalogue_cite(citation *cited, const ty_json *figure, ty_error *error) TY_MUST_CHECK;
ty_status catalogue_take_citation(const catalogue *c, citation *cited, char **out,
                                  ty_error *error) TY_MUST_CHECK;
/** A member {"value": ..., "source": KEY}. */
ty_status catalogue_read_figure(const ty_json *object, const char *key, double minimum,
                                double maximum, citation *cited, double *out,
                                ty_error *error) TY_MUST_CHECK;
ty_status catalogue_copy_member(const catalogue *c, const ty_json *object, const char *key,
                                char **out, ty_error *error) TY_MUST_CHECK;

ty_status catalogue_read_host(const catalogue *c, const ty_json *object, const ty_json *sources,
                              catalogue_host *out, ty_error *error) TY_MUST_CHECK;

#endif
