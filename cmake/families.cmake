# src/families/CLASS.fam as arrays of a source file.
file(GLOB family_texts CONFIGURE_DEPENDS src/families/*.fam)
set(families_text ${CMAKE_CURRENT_BINARY_DIR}/families_text.c)
add_custom_command(OUTPUT ${families_text}
                   COMMAND ${CMAKE_COMMAND} "-Dtexts=${family_texts}" -Dsource=${families_text}
                           -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/families_text.cmake
                   DEPENDS ${family_texts} cmake/families_text.cmake VERBATIM)
target_sources(plim_objects PRIVATE ${families_text})
