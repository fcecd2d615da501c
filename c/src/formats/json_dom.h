/* json_dom.h: simdjson's DOM. Much of that library's header is its own implementations, of which
 * its shared object has all: those that a header may leave out are left out, which saves a third of
 * the time to read it. C++, for oip_json.h and texts_body.h alone; what is made of it belongs to
 * one thread.
 */
#ifndef LM_FORMATS_JSON_DOM_H
#define LM_FORMATS_JSON_DOM_H

#define SIMDJSON_IMPLEMENTATION_ICELAKE 0
#define SIMDJSON_IMPLEMENTATION_HASWELL 0
#define SIMDJSON_IMPLEMENTATION_WESTMERE 0
#include <simdjson.h>

#endif
