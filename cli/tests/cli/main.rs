//! The program as its users see it: started by its name, on a private server, observed from outside.

mod asks;
mod chance;
mod checks;
mod clocks;
mod exits;
mod fixture;
mod inherits;
mod jobs;
mod leftovers;
mod others;
mod pages;
mod people;
mod rights;
mod schema;
mod several;
mod signals;
mod terminal;
mod terms;
mod tls;
