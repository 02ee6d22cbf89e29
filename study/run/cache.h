/**
 * @file cache.h
 * Cache of profiles of this machine, per user. Internal to study/.
 */
#ifndef TY_STUDY_CACHE_H
#define TY_STUDY_CACHE_H

#include "ty_core.h"

/**
 * One file of the user's cache ($XDG_CACHE_HOME/trainyard, ~/.cache/trainyard), in a folder that
 * the user owns, that is no link and not open to others. If there is none, TY_EIO gives the reason.
 */
typedef struct ty_cache ty_cache;
ty_status ty_cache_open(const char *name, ty_cache **out, ty_error *error) TY_MUST_CHECK;
void ty_cache_close(ty_cache *cache);
/** Keeps letters, digits, dots, hyphens and underscores of a word, for a file name. */
void ty_cache_word(const char *word, char *out, size_t room);
/** The file's path, for messages. */
const char *ty_cache_shown(const ty_cache *cache);
/** @param out [out] NULL if there is no readable file; TY_EIO: unsafe permissions */
ty_status ty_cache_load(const ty_cache *cache, ty_profile **out, ty_error *error) TY_MUST_CHECK;
ty_status ty_cache_keep(const ty_cache *cache, const ty_profile *profile,
                        ty_error *error) TY_MUST_CHECK;

#endif
