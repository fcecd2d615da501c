/* cxx.h: what C++ calls by other names than C11. A C++ file includes the standard library's headers
 * first, then this, then Lumen's headers inside `extern "C"`. Compile time only. */
#ifndef LM_BASE_CXX_H
#define LM_BASE_CXX_H

#ifndef __cplusplus
#error "for C++ files only"
#endif

#define _Static_assert static_assert
#define _Noreturn [[noreturn]]

#endif
